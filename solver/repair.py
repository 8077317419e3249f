"""Exchange re-runs: leave out a dear one, then re-run cheaper values until the peak fits again.

The chain recurrence treats equal blocks with equal options where memory is short everywhere; here
single values are exchanged on the exact figures. Work is bounded by counts.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat_gen.solver.arrays import ProblemArrays
from remat_gen.solver.cascade import pruned, without
from remat_gen.solver.improve import Candidate, Trial, retain_more, started, trial_of
from remat_gen.solver.timeline import Timeline

WORK = 60_000  # runs measured in all, per budget
ADDITIONS = 8  # re-runs added for one left out
CHAIN = 4  # operations re-run to make one value again
LOWERED = 40  # additions below the smallest peak found otherwise
TRIED = 2  # additions measured per step


def exchange(
    arrays: ProblemArrays, start: Trial, above: Sequence[Candidate], budget_bytes: int
) -> Candidate:
    """Return the best program found within the budget.

    `start` fits it; those `above` are quicker, do not fit, and are repaired.
    """
    repair = _Repair(arrays, budget_bytes)
    best = _exchanged(repair, start)
    for trial in above:
        fitting = repair.fit(started(arrays, trial), best)
        if fitting is not None:
            best = _exchanged(repair, retain_more(fitting, budget_bytes))
    return best.candidate()


def lowered(arrays: ProblemArrays, start: Candidate) -> list[Candidate]:
    """Return programs of ever lower peak, from adding re-runs one by one."""
    found: list[Candidate] = []
    current: Trial | None = started(arrays, start)
    while current is not None and len(found) < LOWERED:
        repair = _Repair(arrays, current.peak_bytes - 1)
        current = repair.add(current, float("inf"))
        if current is not None:
            found.append(current.candidate())
    return found


def _exchanged(repair: _Repair, best: Trial) -> Trial:
    """Leave out each re-run in turn, the dearest first, and repair."""
    repair.work = WORK
    position = 0
    dear = _dear_reruns(best.timeline)
    while position < len(dear) and repair.work > 0:
        less = trial_of(without(best.timeline, dear[position]))
        trial = repair.fit(less, best)
        repair.work -= len(dear)
        position += 1
        if trial is not None:
            best = retain_more(trial, repair.budget)
            dear, position = _dear_reruns(best.timeline), 0
    return best


def _dear_reruns(timeline: Timeline) -> list[int]:
    times = timeline.arrays.time_us[timeline.runs].tolist()
    again = np.flatnonzero(~timeline.firsts).tolist()
    return sorted(again, key=lambda x: (-times[x], x))


@dataclass(slots=True)
class _Repair:
    arrays: ProblemArrays
    budget: int
    work: int = WORK

    def fit(self, trial: Trial, best: Trial) -> Trial | None:
        """Add re-runs to `trial` until it fits; None if it would not be quicker than `best`."""
        for _ in range(ADDITIONS):
            if trial.time_us >= best.time_us or self.work < 0:
                return None
            if trial.peak_bytes <= self.budget:
                return trial
            added = self.add(trial, best.time_us - trial.time_us)
            if added is None:
                return None
            trial = added
        fits = trial.peak_bytes <= self.budget and trial.time_us < best.time_us
        return trial if fits else None

    def add(self, trial: Trial, time_left: float) -> Trial | None:
        """Make one value that crosses the peak again after it; None if nothing helps."""
        excess = trial.peak_bytes - self.budget
        for read, made in _additions(trial, excess, time_left):
            self.work -= trial.timeline.length
            added = trial_of(pruned(trial.timeline.inserted(read, made)))
            if added.peak_bytes < trial.peak_bytes:
                return added
        return None


def _additions(trial: Trial, excess: int, time_left: float) -> list[tuple[int, tuple[int, ...]]]:
    """Return the TRIED cheapest re-runs per byte, as (position, operations).

    A value costs at least its own producer: walked in that order, few need a closer look.
    """
    timeline, arrays = trial.timeline, trial.timeline.arrays
    crossing = []
    for v, read in _crossing(timeline, int(trial.figures.inside.argmax())):
        gain = min(excess, int(arrays.nbytes[v]))
        least = float(arrays.time_us[arrays.producers[v]])
        if least < time_left:
            crossing.append((least / gain, v, read, gain))
    heapq.heapify(crossing)
    found: list[tuple[float, int, tuple[int, ...]]] = []
    while crossing and (len(found) < TRIED or crossing[0][0] <= found[-1][0]):
        _, v, read, gain = heapq.heappop(crossing)
        made = _remake(timeline, v, read)
        cost = sum(arrays.problem.operations[p].time_us for p in made)
        if made and cost < time_left:
            found = sorted([*found, (cost / gain, read, made)])[:TRIED]
    return [(read, made) for _, read, made in found]


def _crossing(timeline: Timeline, x: int) -> list[tuple[int, int]]:
    """Return the forward values that are there at x for a later read, and the first such read."""
    arrays = timeline.arrays
    v = timeline.values
    there = (timeline.made_at < x) & (x < timeline.last_at)
    chosen = there & arrays.remakeable[v]
    values = np.setdiff1d(v[chosen], arrays.problem.operations[int(timeline.runs[x])].inputs)
    after = np.searchsorted(timeline.touches, timeline.keys_at(values, x + 1))
    reads = timeline.position(timeline.touches[after])
    later = reads >= arrays.problem.forward_count  # forward runs each operation once
    return list(zip(values[later].tolist(), reads[later].tolist(), strict=True))


def _remake(timeline: Timeline, v: int, at: int) -> tuple[int, ...]:
    """Return the operations that make `v` again before position `at`; empty if too many."""
    arrays = timeline.arrays
    operations, producers = arrays.problem.operations, arrays.producers
    chosen: set[int] = set()
    stack = [v]
    while stack:
        p = producers[stack.pop()]
        if not operations[p].rerunnable or len(chosen) == CHAIN:
            return ()
        chosen.add(p)
        missing = (
            u for u in operations[p].inputs if arrays.free[u] and not timeline.is_there(u, at)
        )
        stack.extend(u for u in missing if producers[u] not in chosen)
    return tuple(sorted(chosen))
