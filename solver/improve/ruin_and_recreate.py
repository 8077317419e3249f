"""Improve a program within a budget: free a window of it from re-runs, and fit it in again.

A large neighbourhood search by *ruin and recreate* (Schrimpf et al., "Record breaking optimization
results using the ruin and recreate principle", 2000). The window is a stretch of the schedule, a
handful of re-runs anywhere, or the same re-run in a row of identical layers, which is what has to
change at once where every layer has the same peak. It is fitted in again by the cheapest
additions; then re-runs that slack allows are left out. Every trial is measured as a whole. The
random numbers are Python's own, from fixed seeds: the result depends on the problem alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import numpy as np

from remat_gen.solver.improve.add_reruns import Addition, PriceRule, additions, alike, random_taste
from remat_gen.solver.improve.memory_measure import (
    MeasuredProgram,
    MemoryExcess,
    Trial,
    over_budget,
    trial_of,
)
from remat_gen.solver.improve.retain_more import retain_more
from remat_gen.solver.improve.run_order import reordered
from remat_gen.solver.improve.run_timeline import Timeline

STRETCH = 12  # re-runs of a stretch, at most
HANDFUL = 4
ADDED = 60  # additions per trial, at most
LOOSE = 0.15  # share of the re-runs' time that a trial may be slower by before slack is used
WORSE = 0.05  # share by which the current program may be worse than the best, at the start
LOWERED = 40  # steps below the smallest peak found otherwise
STEP_DOWN = 50  # such a step is the peak over this


@dataclass(frozen=True, slots=True)
class Moving:
    """How much runs move: `first` before a fit, `after` each of its additions, at most.

    Of the additions so many are `measured` per step.
    """

    first: int
    after: int
    measured: int


STILL = Moving(first=0, after=0, measured=2)
IN_SEGMENTS = Moving(first=20, after=2, measured=2)  # backward ones of a block: little room
ANYWHERE = Moving(first=200, after=5, measured=24)  # in bare graphs, where that pays most


@dataclass(slots=True)
class Window:
    """A search within one budget; `plain_us` is the time of running everything once.

    A program that takes less than `floor_us` is not taken. Runs move as `moving` says.
    """

    budget: int
    plain_us: float
    floor_us: float
    random: Random
    moving: Moving = STILL

    def improved(self, start: Trial, trials: int) -> Trial:
        """Return the best program that so many trials find from one that fits."""
        best = current = start
        for trial in range(trials):
            if best.time_us <= self.floor_us or current.timeline.firsts.all():
                break
            slower = WORSE * (1 - trial / trials) * (best.time_us - self.plain_us)
            found = self._tried(current)
            if found and self.floor_us <= found.time_us < current.time_us + slower:
                current = found
            if current.time_us < best.time_us:
                best = current
        return best

    def fit(self, trial: Trial, limit_us: float, taste: PriceRule) -> Trial | None:
        """Add re-runs until a program fits; None if it would take `limit_us` or nothing helps."""
        trial = reordered(trial, self.budget, self.moving.first)
        excess = MemoryExcess(trial, self.budget)
        for _ in range(ADDED):
            if not excess.total or trial.time_us >= limit_us:
                break
            added = self._added(trial, excess, limit_us - trial.time_us, taste)
            if added is None:
                return None
            trial, excess = added, MemoryExcess(added, self.budget)
        return trial if not excess.total and trial.time_us < limit_us else None

    def _tried(self, current: Trial) -> Trial | None:
        timeline = current.timeline
        less = trial_of(timeline.without(_chosen(timeline, self.random)))
        limit = current.time_us + LOOSE * (current.time_us - self.plain_us)
        fitting = self.fit(less, limit, random_taste(self.random))
        return retain_more(fitting, self.budget) if fitting else None

    def _added(
        self, trial: Trial, excess: MemoryExcess, time_left: float, taste: PriceRule
    ) -> Trial | None:
        found = additions(trial, excess, time_left, taste, self.random)
        together = alike(found, excess.total)
        choices = [together] * (len(together) > 1)
        choices += [[one] for one in found[: self.moving.measured]]
        for choice in choices:
            added = trial_of(_with_additions(trial.timeline, choice).pruned())
            added = reordered(added, self.budget, self.moving.after)
            if over_budget(added, self.budget) < excess.total:
                return added
        return None


def _with_additions(timeline: Timeline, choice: list[Addition]) -> Timeline:
    for addition in sorted(choice, key=lambda a: -a.at):
        timeline = timeline.inserted(addition.at, addition.operations)
    return timeline


def lowered(trial: Trial, plain_us: float, moving: Moving) -> list[MeasuredProgram]:
    """Return programs of ever lower peak, from adding re-runs to one of a low peak."""
    found: list[MeasuredProgram] = []
    peak = trial.peak_bytes
    step = max(1, peak // STEP_DOWN)
    while step and len(found) < LOWERED:
        window = Window(peak - step, plain_us, plain_us, Random(0), moving)
        fitting = window.fit(trial, float("inf"), PriceRule())
        if fitting is None:
            step //= 2
            continue
        trial, peak = fitting, fitting.peak_bytes
        found.append(trial.candidate())
    return found


def _chosen(timeline: Timeline, random: Random) -> list[int]:
    """Return the positions of the re-runs to leave out."""
    again: list[int] = np.flatnonzero(~timeline.firsts).tolist()
    kind = int(3 * random.random())
    if kind == 0:
        return _stretch(again, STRETCH, random)
    if kind == 1:
        count = 1 + int(random.random() * min(HANDFUL, len(again)))
        return sorted({again[int(random.random() * len(again))] for _ in range(count)})
    operations = timeline.arrays.problem.operations
    one = operations[int(timeline.runs[again[int(random.random() * len(again))]])]
    alike = [x for x in again if operations[int(timeline.runs[x])].signature == one.signature]
    return alike if random.random() < 0.5 else _stretch(alike, len(alike), random)


def _stretch(positions: list[int], most: int, random: Random) -> list[int]:
    count = 1 + int(random.random() * min(most, len(positions)))
    start = int(random.random() * (len(positions) - count + 1))
    return positions[start : start + count]
