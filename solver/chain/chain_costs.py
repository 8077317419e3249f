"""The numbers of the chain recurrence: bytes around each block, peaks of running forward only.

Letters as in DESIGN: f_i is the frontier that enters block i, g_j the gradients that blocks >= j
leave for blocks < j. T(i, j, m) has f_i retained outside of m; all else is inside m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.block_option import forward_inside, operations_for
from remat_gen.solver.blocks.local_block import Gradients, Role, gradients, localised
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.sums import added


@dataclass(frozen=True, slots=True)
class Advance:
    """Running a block forward only: operations, their time, and the peak."""

    operations: tuple[int, ...]
    time_us: float
    peak_bytes: int


class ChainCosts:
    """All constants of the recurrence for one chain; identical for every strategy on it."""

    def __init__(self, problem: Problem, chain: Chain) -> None:
        grads = gradients(problem, chain)
        self.problem, self.chain = problem, chain
        self.blocks = blocks = localised(problem, chain, grads)
        self.n = len(blocks)
        self.nbytes = [value.nbytes for value in problem.values]
        outputs = [block.bytes_of(Role.OUTPUT) for block in blocks]
        self.outputs_before = [0, *accumulate(outputs)]
        self.pinned_before = [0, *accumulate(block.bytes_of(Role.PINNED) for block in blocks)]
        self.gradients_held = [self._gradients_held(grads, j) for j in range(self.n + 1)]
        self.around_backward = [
            self.outputs_before[-1] + self._passing(grads, i) for i in range(self.n)
        ]
        self._cached = cache(self._advance)

    def frontier_extra(self, i: int, k: int) -> int:
        """Return bytes(f_k minus f_i)."""
        frontiers = self.chain.frontiers
        return sum(self.nbytes[v] for v in frontiers[k] - frontiers[i])

    def pinned(self, i: int, k: int) -> int:
        """Return the bytes that blocks i … k-1 leave pinned."""
        return self.pinned_before[k] - self.pinned_before[i]

    def around_forward(self, i: int, b: int, j: int) -> int:
        """Return what is there besides block b's own while T(i, j) runs its forward."""
        if j == self.n:
            return self.outputs_before[b] + self.pinned(i, b)
        return self.outputs_before[-1] + self.gradients_held[j] + self.pinned(i, j)

    def advance(self, i: int, b: int, *, first: bool) -> Advance:
        """Run block b forward and keep only f_{b+1}, where f_i is paid for elsewhere."""
        return self._cached(b, self.chain.frontiers[b] & self.chain.frontiers[i], first)

    def _gradients_held(self, grads: Gradients, j: int) -> int:
        """Return bytes(g_j), and the step's outputs that backward made down to block j."""
        values = self.problem.values
        frontier = [v for v in grads.frontier(j) if values[v].held is not Held.STEP]
        ended = [v for v, b in grads.made.items() if b >= j and values[v].held is Held.STEP]
        return sum(self.nbytes[v] for v in frontier + ended)

    def _passing(self, grads: Gradients, i: int) -> int:
        """Return the gradients that are there during block i's backward but not its own."""
        read = {v for t in self.chain.blocks[i].backward for v in self.problem.operations[t].inputs}
        total = 0
        for v, made in grads.made.items():
            held = self.problem.values[v].held
            if made <= i:
                continue
            unread = made == self.n == i + 1 and grads.read[v] < 0 and held is Held.SEGMENT
            passes = grads.read[v] > -1 and grads.read[v] <= i and v not in read
            if held is Held.STEP or unread or passes:
                total += self.nbytes[v]
        return total

    def _advance(self, b: int, shared: frozenset[int], first: bool) -> Advance:
        """See `advance`; what enters and is not shared goes behind its last use, if it may."""
        block, local = self.chain.blocks[b], self.blocks[b]
        whole = tuple(range(block.stop - block.start))
        chosen = whole if first else operations_for(local, local.regained())
        runs = tuple(block.start + p for p in chosen)
        reads = [self.problem.operations[p].inputs for p in runs]
        leaving = self.chain.frontiers[b + 1]
        leaving = leaving if first else leaving & self.chain.needed
        entering = self.chain.frontiers[b] - shared
        mortal = entering - leaving
        last = {v: q for q, read in enumerate(reads) for v in read if v in mortal}
        there = peak = sum(self.nbytes[v] for v in entering)
        keep = local.exits() if first else local.regained()
        for q, inside in enumerate(forward_inside(local, chosen, keep, first=first)):
            peak = max(peak, there + inside)
            there -= sum(self.nbytes[v] for v in set(reads[q]) if last.get(v) == q)
        return Advance(runs, added(self.problem.operations[p].time_us for p in runs), peak)
