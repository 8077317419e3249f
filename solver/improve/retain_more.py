"""Local improvement on exact figures: use the slack that slots and persistent options left.

A re-run is left out, and with it all re-runs that only served it, where its result fits in memory
until it is read. Every trial is measured as a whole. Work is bounded by counts, never by time, so
that the result does not depend on the machine.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from remat_gen.solver.improve.memory_measure import Trial, trial_of
from remat_gen.solver.improve.problem_arrays import MADE, READ, Ints
from remat_gen.solver.improve.run_timeline import Timeline

WORK = 200_000  # runs measured in all, per improvement

Rerun: TypeAlias = tuple[int, int]  # its operation and the first runs before it: as others go too


def retain_more(start: Trial, budget_bytes: int) -> Trial:
    """Leave out re-runs, the most expensive first, while the peak fits the budget.

    What did not fit is not tried again: what is retained instead hardly ever makes room.
    """
    best, tried, work = start, set[Rerun](), WORK
    while True:
        slack = budget_bytes - best.inside
        for position, rerun in removable(best.timeline, slack):
            if rerun in tried:
                continue
            work -= best.timeline.length
            if not surely_over(best.timeline, slack, position):
                trial = trial_of(best.timeline.without([position]))
                if trial.peak_bytes <= budget_bytes and trial.time_us < best.time_us:
                    best = trial
                    break
            if work < 0:
                return best
            tried.add(rerun)
        else:
            return best


def removable(timeline: Timeline, slack: Ints) -> list[tuple[int, Rerun]]:
    """Return the re-runs whose results may fit in the slack, with positions, by falling time.

    `slack` is what is left of the budget inside each run.
    """
    arrays = timeline.arrays
    wanted = np.flatnonzero((timeline.reads > 0) & ~timeline.newest)
    position = timeline.made_at[wanted]
    need = np.zeros(timeline.length, dtype=np.int64)
    np.add.at(need, position, arrays.nbytes[timeline.values[wanted]])
    since = np.arange(timeline.length)
    np.minimum.at(since, position, timeline.last_at[wanted - 1])
    before = np.cumsum(timeline.firsts)
    found = []
    for x in np.flatnonzero(~timeline.firsts).tolist():
        p = int(timeline.runs[x])
        room = int(slack[since[x] + 1 : x + 1].min(initial=2**62))
        if need[x] <= room + arrays.read_bytes[p]:
            found.append((-float(arrays.time_us[p]), x, (p, int(before[x]))))
    return [(x, rerun) for _, x, rerun in sorted(found)]


def surely_over(timeline: Timeline, slack: Ints, x: int) -> bool:
    """Tell whether the slack is too small for what is retained in place of the re-run at x.

    False where only measuring can tell: where other re-runs go with it, a held value earlier, or
    one is read twice.
    """
    arrays = timeline.arrays
    operation = arrays.problem.operations[timeline.run_list[x]]
    if len({*operation.inputs}) < len(operation.inputs):
        return False
    retained = []
    for v in operation.outputs:
        stay = timeline.stay(v, x, MADE)
        if not arrays.free[v]:
            return False
        if timeline.reads[stay]:
            retained.append((int(timeline.last_at[stay - 1]), arrays.sizes[v]))
    start = min((since for since, _ in retained), default=x) + 1
    left = slack[start:x].copy()
    for since, nbytes in retained:
        left[since + 1 - start :] -= nbytes
    for u in operation.inputs:
        stay = timeline.stay(u, x, READ)
        if not arrays.free[u] or (timeline.reads[stay] == 1 and _again(timeline, stay)):
            return False
        if timeline.last_at[stay] == x:  # freed at its last read before
            left[max(0, timeline.touched_before(u, x) + 1 - start) :] += arrays.sizes[u]
    return bool(left.min(initial=0) < 0)


def _again(timeline: Timeline, stay: int) -> bool:
    """Tell whether a re-run made what stays."""
    return bool(timeline.from_run[stay] and not timeline.firsts[timeline.made_at[stay]])
