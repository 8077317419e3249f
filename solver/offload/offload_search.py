"""Which values go to the host: from a schedule that only runs again, step by step, by the replay.

A schedule that is found within more memory runs less again, and has too much resident. Values are
sent away, those that have longest to travel first, until it fits. Then whatever makes it quicker is
done: a fetch in place of a re-run, a value kept, or made again, in place of a fetch.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from remat_gen.solver.contest.contest import Entry
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.offload.copy_places import with_copies
from remat_gen.solver.offload.fetch_moves import (
    in_place_of_reruns,
    longest_away,
    with_fetch,
    without_fetches,
)

NAME = "offload"
WORK = 3_000_000  # runs that are looked at while programs are made better
GAIN = 1e-6  # of the time: less is none


@dataclass(slots=True)
class OffloadSearch:
    """A search within one budget; `work` is what is left of it."""

    problem: Problem
    budget_bytes: int
    work: int = WORK

    def judged(self, program: Program) -> Entry | None:
        """Return a program with its figures; None where it cannot run."""
        self.work -= len(program.flat())
        try:
            schedule = with_copies(self.problem, program, self.budget_bytes)
            return Entry(NAME, program, schedule, replay(self.problem, schedule))
        except IllegalScheduleError:
            return None

    def fitted(self, program: Program) -> Entry | None:
        """Send values away until the program fits; None where that is not enough."""
        found = self.judged(program)
        while found is not None and found.replay.peak_bytes > self.budget_bytes:
            away = longest_away(self.problem, found.program)
            more = (self.judged(with_fetch(self.problem, found.program, v)) for v in away)
            excess = self._excess(found)
            found = next((m for m in more if m and self._excess(m) < excess), None)
        return found

    def _excess(self, trip: Entry) -> int:
        """Return what exceeds the budget, summed over all runs."""
        kept = max(m.nbytes for m in trip.replay.timeline) - trip.replay.peak_bytes
        room = self.budget_bytes + kept
        return sum(max(0, moment.nbytes - room) for moment in trip.replay.timeline)

    def improved(self, trip: Entry) -> Entry:
        """Return the program after all steps that make it quicker, one after another."""
        better: Entry | None = trip
        while better is not None and self.work > 0:
            trip, better = better, self._step(better)
        return trip

    def _step(self, trip: Entry) -> Entry | None:
        """Return the quickest program that is one step away; None where none is quicker."""
        best = None
        least = trip.replay.time_us * (1 - GAIN)
        fetching = in_place_of_reruns(self.problem, trip.program)
        for program in chain(fetching, without_fetches(self.problem, trip.program)):
            if self.work <= 0:
                break
            found = self.judged(program)
            fits = found is not None and found.replay.peak_bytes <= self.budget_bytes
            if found is not None and fits and found.replay.time_us < least:
                best, least = found, found.replay.time_us
        return best
