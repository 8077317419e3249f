"""Leave out re-runs where a budget has room for what they make."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from remat_gen.solver.improve.memory_measure import Trial, trial_of
from remat_gen.solver.improve.run_timeline import Ints, Timeline

WORK = 200_000  # runs measured in all, per improvement

Rerun: TypeAlias = tuple[int, int]  # its operation and the first runs before it: as others go too


def retain_more(start: Trial, budget_bytes: int) -> Trial:
    """Leave out re-runs, the most expensive first, while the peak fits the budget.

    What did not fit is not tried again: what is retained instead hardly ever makes room.
    """
    best, tried, work = start, set[Rerun](), WORK
    while True:
        for position, rerun in removable(best.timeline, budget_bytes - best.inside):
            if rerun in tried:
                continue
            work -= best.timeline.length
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
