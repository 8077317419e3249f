"""Strategy `griewank`: binomial checkpointing of a chain with a number of slots.

Source: Andreas Griewank and Andrea Walther, "Algorithm 799: revolve: an implementation of
checkpointing for the reverse or adjoint mode of computational differentiation", ACM TOMS 2000. It
is optimal for uniform chains: l steps with s checkpoints, the initial state among them, take
t(l, s) = r · l - C(s + r, s + 1) advances, r being the least with C(s + r, s) ≥ l.

On other graphs the steps are the blocks between articulation points, of whatever time and size
(`reversal`): nothing is proved there. Slots are as many as fit the budget, in the replay. A bare
graph without backward flags has no forward graph to cut.
"""

from __future__ import annotations

from functools import cache
from math import comb

from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.published.reversal import Reversal, reversal_of

SLOTS = {Effort.QUICK: 20, Effort.NORMAL: 60, Effort.THOROUGH: 1000}
"""Numbers of slots up to which each is tried."""


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return the schedule with the most slots that fits: more slots, less time."""
    incumbent = incumbent_of(problem, budget_bytes, on_better)
    incumbent.offer_all([range(len(problem.operations))])
    if incumbent.best is not None:
        return incumbent.found()
    reversal = reversal_of(problem)
    for keep_exits in (True, False):
        fewer = incumbent_of(problem, budget_bytes)
        for slots in _tried(len(reversal.turns), SLOTS[effort]):
            fewer.offer_all([revolve(reversal, slots, keep_exits=keep_exits)])
            if fewer.best is not None:
                incumbent.offer(fewer.best.runs)
                break
    return incumbent.found()


def revolve(reversal: Reversal, slots: int, *, keep_exits: bool) -> list[int]:
    """Return the runs that reverse all steps with `slots` checkpoints besides the initial state.

    With `keep_exits` the state behind a step is kept for its turn: one slot more, where the turn
    reads both.
    """
    runs = list(range(reversal.problem.forward_count))
    pending = [(0, len(reversal.turns), slots)]  # spans of steps to reverse, the last one first
    again = False  # in the first forward, which all advances up to the first turn are part of
    while pending:
        start, stop, free = pending.pop()
        if stop - start > 1 and free:
            middle = start + split(stop - start, free + 1)
            runs += reversal.advance(start, middle) if again else []
            pending += [(start, middle, free), (middle, stop, free - 1)]
            continue
        for step in range(stop - 1, start - 1, -1):
            runs += reversal.advance(start, step) if again else []
            runs += reversal.turn(step, again=again, keep_exit=keep_exits)
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
