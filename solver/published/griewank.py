"""Strategy `griewank`: binomial checkpointing of a chain with a number of slots.

Source: Andreas Griewank and Andrea Walther, "Algorithm 799: revolve: an implementation of
checkpointing for the reverse or adjoint mode of computational differentiation", ACM TOMS 2000. It
is optimal for uniform chains: l steps with s checkpoints, the initial state among them, take
t(l, s) = r · l - C(s + r, s + 1) advances, r being the least with C(s + r, s) ≥ l.

On other graphs the steps are the blocks between articulation points, of whatever time and size:
nothing is proved there. Slots are as many as fit the budget, in the replay. A bare graph without
backward flags has no forward graph to cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import comb

from remat_gen.solver.blocks.block_chain import Chain, build_chain
from remat_gen.solver.blocks.block_option import operations_for
from remat_gen.solver.blocks.judged_runs import IncumbentSchedule
from remat_gen.solver.blocks.local_block import LocalBlock, gradients, localised
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.published.local_forwards import articulation_cuts, forward_vertices

SLOTS = {Effort.QUICK: 20, Effort.NORMAL: 60, Effort.THOROUGH: 1000}
"""Numbers of slots up to which each is tried."""


def search(incumbent: IncumbentSchedule, effort: Effort) -> Found:
    """Return the schedule with the most slots that fits: more slots, less time."""
    steps = _Steps.of(incumbent.problem)
    for keep_exits in (True, False):
        for slots in _tried(len(steps.blocks), SLOTS[effort]):
            judged = incumbent.offer(revolve(steps, slots, keep_exits=keep_exits))
            assert judged is not None, "proposed runs cannot run"
            if incumbent.fits(judged):
                break
    return incumbent.found()


@dataclass(frozen=True, slots=True)
class _Steps:
    """A training step as a chain of steps to reverse: the blocks between articulation points."""

    chain: Chain
    blocks: tuple[LocalBlock, ...]

    @classmethod
    def of(cls, problem: Problem) -> _Steps:
        """Cut behind the last vertex as well: what backward starts from is a state, too."""
        ends = [p + 1 for p in forward_vertices(problem)[-1:] if p + 1 < problem.forward_count]
        chain = build_chain(problem, (*articulation_cuts(problem), *ends))
        return cls(chain, localised(problem, chain, gradients(problem, chain)))

    def advance(self, start: int, stop: int) -> list[int]:
        """Return the operations that make the state of step `stop` from that of step `start`."""
        return [
            self.chain.blocks[i].start + p
            for i in range(start, stop)
            for p in operations_for(self.blocks[i], self.blocks[i].regained())
        ]

    def turn(self, i: int, *, again: bool, keep_exits: bool) -> list[int]:
        """Return the backward operations of a step, after what they need `again` from its block.

        With `keep_exits` that is not the state behind the block: the turn before this one had it.
        """
        local, block = self.blocks[i], self.chain.blocks[i]
        wanted = {v for operation in local.backward for v in operation.inputs}
        wanted -= local.exits() if keep_exits else set()
        needed = [block.start + p for p in operations_for(local, wanted)] if again else []
        reads = [any(map(local.decided, operation.inputs)) for operation in local.backward]
        first = reads.index(True) if True in reads else 0
        return [*block.backward[:first], *needed, *block.backward[first:]]


def revolve(steps: _Steps, slots: int, *, keep_exits: bool) -> list[int]:
    """Return the runs that reverse all steps with `slots` checkpoints besides the initial state.

    With `keep_exits` the state behind a step is kept for its turn: one slot more, where the turn
    reads both.
    """
    runs = list(range(steps.chain.blocks[-1].stop))
    pending = [(0, len(steps.blocks), slots)]  # spans of steps to reverse, the last one first
    again = False  # in the first forward, which all advances up to the first turn are part of
    while pending:
        start, stop, free = pending.pop()
        if stop - start > 1 and free:
            middle = start + split(stop - start, free + 1)
            runs += steps.advance(start, middle) if again else []
            pending += [(start, middle, free), (middle, stop, free - 1)]
            continue
        for step in range(stop - 1, start - 1, -1):
            runs += steps.advance(start, step) if again else []
            runs += steps.turn(step, again=again, keep_exits=keep_exits)
            again = True
    return runs


@cache
def advances(length: int, checkpoints: int) -> int:
    """Return t(l, s), the least number of steps forward to reverse a chain of l steps."""
    r = 0
    while comb(checkpoints + r, checkpoints) < length:
        r += 1
    return r * length - comb(checkpoints + r, checkpoints + 1)


@cache
def split(length: int, checkpoints: int) -> int:
    """Return how far to advance before the next checkpoint is taken."""
    least = advances(length, checkpoints)
    return next(
        m
        for m in range(1, length)
        if m + advances(length - m, checkpoints - 1) + advances(m, checkpoints) == least
    )


def _tried(steps: int, count: int) -> list[int]:
    """Return numbers of slots from steps - 1 to 0: all below `count`, fewer and fewer above."""
    tried, slots = [], steps - 1
    while slots >= 0:
        tried.append(slots)
        slots -= 1 + slots // count
    return tried
