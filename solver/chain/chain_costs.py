"""The numbers of the chain recurrence: bytes around each block, peaks of running forward only.

Letters as in DESIGN: f_i is the frontier that enters block i, g_j the gradients that blocks >= j
leave for blocks < j. T(i, j, m) has f_i retained outside of m; all else is inside m.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.block_option import operations_for
from remat_gen.solver.blocks.local_block import Gradients, LocalBlock, Role, gradients
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

    def __init__(self, problem: Problem, chain: Chain, blocks: Sequence[LocalBlock]) -> None:
        self.problem, self.chain, self.blocks = problem, chain, blocks
        self.n = len(blocks)
        self.nbytes = [value.nbytes for value in problem.values]
        grads = gradients(problem, chain)
        outputs = [block.bytes_of(Role.OUTPUT) for block in blocks]
        self.outputs_before = [0, *accumulate(outputs)]
        self.pinned_before = [0, *accumulate(block.bytes_of(Role.PINNED) for block in blocks)]
        self.gradients_held = [self._gradients_held(grads, j) for j in range(self.n + 1)]
        self.around_backward = [
            self.outputs_before[-1] + self._passing(grads, i) for i in range(self.n)
        ]
        self._advances: dict[tuple[int, bool, frozenset[int]], Advance] = {}

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
        shared = self.chain.frontiers[b] & self.chain.frontiers[i]
        key = (b, first, shared)
        if key not in self._advances:
            self._advances[key] = self._advance(b, shared, first)
        return self._advances[key]

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
        start, stop = self.chain.blocks[b].start, self.chain.blocks[b].stop
        local = self.blocks[b]
        chosen = range(stop - start) if first else operations_for(local, local.regained())
        runs = tuple(start + p for p in chosen)
        time_us = added(self.problem.operations[p].time_us for p in runs)
        return Advance(runs, time_us, self._advance_peak(b, runs, shared, first))

    def _advance_peak(
        self, b: int, runs: tuple[int, ...], shared: frozenset[int], first: bool
    ) -> int:
        entering, leaving = self.chain.frontiers[b], self.chain.frontiers[b + 1]
        leaving = leaving if first else leaving & self.chain.needed
        last = {v: q for q, p in enumerate(runs) for v in self._touched(p)}
        resident = peak = sum(self.nbytes[v] for v in entering - shared)
        own = set().union(*(self.problem.operations[p].outputs for p in runs))
        for position, p in enumerate(runs):
            operation = self.problem.operations[p]
            made = sum(self.nbytes[v] for v in operation.outputs)
            peak = max(peak, resident + made + self.problem.extra_bytes(operation))
            resident += sum(self.nbytes[v] for v in operation.outputs if first or self._dies(v))
            for v in self._touched(p):
                mortal = (v in own and self._dies(v)) or (v in entering and v not in shared)
                if mortal and last[v] == position and v not in leaving:
                    resident -= self.nbytes[v]
        return peak

    def _dies(self, v: int) -> bool:
        return self.problem.values[v].held is Held.FREE and v not in self.chain.pinned

    def _touched(self, p: int) -> list[int]:
        operation = self.problem.operations[p]
        return list(dict.fromkeys(operation.inputs + operation.outputs))
