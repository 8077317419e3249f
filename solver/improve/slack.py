"""Which re-runs the slack under a budget may make needless: what they make stays in memory."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from remat_gen.solver.improve.problem_arrays import MADE, READ, Ints
from remat_gen.solver.improve.run_timeline import Timeline

Rerun: TypeAlias = tuple[int, int]  # its operation and the first runs before it: as others go too


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
    for x in np.flatnonzero(~timeline.firsts & ~timeline.forced).tolist():
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
