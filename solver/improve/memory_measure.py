"""Peak and time of a program, quickly: the same figures as `replay` of its schedule.

A search measures thousands of programs; the replay of the chosen one stays the judge. Each stay of
a value in memory is an interval of positions in the list of runs; a running sum of what enters and
leaves gives the bytes inside each run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_gen.solver.improve.problem_arrays import Ints, ProblemArrays
from remat_gen.solver.improve.run_timeline import Timeline, timeline_of
from remat_gen.solver.law.pins import honoured
from remat_gen.solver.law.program import Program


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program with its figures."""

    peak_bytes: int
    time_us: float
    program: Program


@dataclass(frozen=True, slots=True)
class Trial:
    """A timeline with the bytes inside each run and their maximum, while it is being improved."""

    timeline: Timeline
    inside: Ints
    peak_bytes: int

    @property
    def time_us(self) -> float:
        return self.timeline.time_us

    def candidate(self) -> MeasuredProgram:
        return MeasuredProgram(self.peak_bytes, self.time_us, self.timeline.program())


def started(arrays: ProblemArrays, program: Program) -> Trial:
    """Measure a program without the re-runs that nobody reads."""
    return trial_of(timeline_of(arrays, program).pruned())


def trial_of(timeline: Timeline) -> Trial:
    """Measure a timeline, with the re-runs that recomputed values need."""
    if timeline.breaks_pins():
        arrays = timeline.arrays
        timeline = timeline_of(arrays, honoured(arrays.problem, timeline.program()))
    return measured(timeline)


def measured(timeline: Timeline) -> Trial:
    """Measure a legal program by its timeline; nothing is checked."""
    inside = _inside(timeline)
    return Trial(timeline, inside, int(inside.max(initial=0)))


class MemoryExcess:
    """Bytes over a budget inside each run, as running sums: what giving up a value would take off.

    The area over the budget falls with every step of a repair, also where the same peak stands in
    every layer and no single step can lower the highest of them.
    """

    def __init__(self, trial: Trial, budget: int) -> None:
        """Sum up."""
        over = np.maximum(trial.inside - budget, 0)
        self.sums = np.concatenate(([0], np.cumsum(over)))
        self.counts = np.concatenate(([0], np.cumsum(over > 0)))
        self.total = int(self.sums[-1])
        self._sums, self._counts = self.sums.tolist(), self.counts.tolist()

    def gain(self, nbytes: int, start: int, stop: int) -> int:
        """Return at most what the area falls by if so many bytes go from runs start … stop-1."""
        over: int = self._sums[stop] - self._sums[start]
        whole: int = nbytes * (self._counts[stop] - self._counts[start])
        return min(over, whole)


def over_budget(trial: Trial, budget: int) -> int:
    """Return the area over a budget; 0 where nothing is."""
    if trial.peak_bytes <= budget:
        return 0
    return int(np.maximum(trial.inside - budget, 0).sum())


def _inside(timeline: Timeline) -> Ints:
    arrays = timeline.arrays
    free = arrays.free[timeline.values]
    begin, end = timeline.made_at[free], timeline.last_at[free]
    held, held_begin, held_end, extra = _held_stays(timeline, (~free).nonzero()[0])
    nbytes = np.concatenate((arrays.nbytes[timeline.values[free]], arrays.nbytes[held]))
    places = np.concatenate((begin, held_begin, end + 1, held_end + 1))
    # The weights are floats: exact, since sums of bytes stay far below 2**53.
    total = np.bincount(places, np.concatenate((nbytes, -nbytes)), timeline.length + 2)
    inside: Ints = total.cumsum()[: timeline.length].astype(np.int64)
    for position, more in extra:
        inside[position] += more
    return inside + arrays.extra_bytes[timeline.runs]


def _held_stays(timeline: Timeline, stays: Ints) -> tuple[Ints, Ints, Ints, list[tuple[int, int]]]:
    """Return held values with begin and end of their stays, and what re-runs make twice."""
    if not len(stays):
        return stays, stays, stays, []
    values = timeline.values[stays]
    begin = timeline.made_at[stays]
    end = _releases(timeline, stays)
    again = (~timeline.newest[stays]).nonzero()[0]
    lasting = np.ones(len(stays), dtype=np.bool_)
    extra = []
    released = end.copy()
    for k in again.tolist():
        if begin[k] <= released[k - 1]:
            released[k] = released[k - 1]
            lasting[k] = False
            extra.append((int(begin[k]), int(timeline.arrays.nbytes[values[k]])))
    return values[lasting], begin[lasting], end[lasting], extra


def _releases(timeline: Timeline, stays: Ints) -> Ints:
    """Return the last position at which each held stay's value is there if it is made there."""
    values = timeline.values[stays]
    made_in = _segments_at(timeline, timeline.made_at[stays])
    made_in[~timeline.from_run[stays]] = 0
    last = np.full(len(timeline.arrays.nbytes), -1, dtype=np.int64)
    read = timeline.reads[stays] > 0
    used_in = _segments_at(timeline, timeline.last_at[stays[read]])
    last[values[read]] = used_in  # of several stays of a value the last, which is read last
    segment = np.maximum(np.maximum(made_in, last[values]), timeline.first_backward)
    end: Ints = timeline.starts[np.minimum(segment + 1, timeline.count)] - 1
    return np.where(timeline.arrays.to_the_end[values], timeline.length - 1, end)


def _segments_at(timeline: Timeline, positions: Ints) -> Ints:
    segments: Ints = timeline.starts.searchsorted(positions, side="right") - 1
    return segments
