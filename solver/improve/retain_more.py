"""Local improvement on exact figures: use the slack that slots and persistent options left.

A re-run is left out, and with it all re-runs that only served it, where its result fits in memory
until it is read. Every trial is measured as a whole. Work is bounded by counts, never by time, so
that the result does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.improve.memory_measure import MemoryMeasure, measured
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.run_timeline import Timeline, timeline_of
from remat_gen.solver.improve.slack import Rerun, removable, surely_over
from remat_gen.solver.law.pins import honoured
from remat_gen.solver.law.program import Program

WORK = 200_000  # runs measured in all, per improvement


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """A program with its figures."""

    peak_bytes: int
    time_us: float
    program: Program


@dataclass(frozen=True, slots=True)
class Trial:
    """A timeline with its figures, while it is being improved."""

    timeline: Timeline
    figures: MemoryMeasure

    @property
    def peak_bytes(self) -> int:
        """Return the peak."""
        return self.figures.peak_bytes

    @property
    def time_us(self) -> float:
        """Return the time of all runs."""
        return self.figures.time_us

    def candidate(self) -> MeasuredProgram:
        """Return the program with its figures."""
        return MeasuredProgram(self.peak_bytes, self.time_us, self.timeline.program())


def trial_of(timeline: Timeline) -> Trial:
    """Measure a timeline, with the re-runs that recomputed values need."""
    if timeline.breaks_pins():
        arrays = timeline.arrays
        timeline = timeline_of(arrays, honoured(arrays.problem, timeline.program()))
    return Trial(timeline, measured(timeline))


def started(arrays: ProblemArrays, candidate: MeasuredProgram) -> Trial:
    """Return a candidate as a trial."""
    return trial_of(timeline_of(arrays, candidate.program))


def retain_more(start: Trial, budget_bytes: int) -> Trial:
    """Leave out re-runs, the most expensive first, while the peak fits the budget.

    What did not fit is not tried again: what is retained instead hardly ever makes room.
    """
    best, tried, work = start, set[Rerun](), WORK
    while True:
        slack = budget_bytes - best.figures.inside
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
