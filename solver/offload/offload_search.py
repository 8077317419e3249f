"""Which values go to the host: from a schedule that only runs again, step by step, by the replay.

A schedule found within more memory has too much resident: values are sent away, those that have
longest to travel first, until it fits. Then whatever makes it quicker is done. Runs beyond the
problem's operations are fetches (see `copy_places`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from remat_gen.solver.contest.contest import Entry
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, first_runs
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.offload.copy_places import fetch_of, with_copies, with_fetches

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
        for program in otherwise(self.problem, trip.program):
            if self.work <= 0:
                break
            found = self.judged(program)
            if found is None or found.replay.peak_bytes > self.budget_bytes:
                continue
            if found.replay.time_us < least:
                best, least = found, found.replay.time_us
        return best


def longest_away(problem: Problem, program: Program) -> list[int]:
    """Return the values that could travel, those first that nothing reads for the longest time.

    Steps are like stacks: what is made first is read last, so that it has the most time to travel
    and makes room wherever memory is short.
    """
    gaps: list[tuple[float, int]] = []
    runs, turn = program.flat(), program.starts()[program.block_count]
    count, moment = len(problem.operations), 0.0
    last: dict[int, float] = {}
    seen: set[int] = set()
    for i, p in enumerate(runs):
        if p >= count:
            seen.add(p - count)
            continue
        operation = problem.operations[p]
        if i >= turn:
            new = [v for v in operation.inputs if v not in seen and v in last]
            gaps += [(moment - last[v], v) for v in new if problem.values[v].travels]
            seen.update(operation.inputs, operation.outputs)
        moment += operation.time_us
        if i < turn:
            last.update(dict.fromkeys((*operation.inputs, *operation.outputs), moment))
    return [v for _, v in sorted(gaps, key=lambda gap: (-gap[0], gap[1]))]


def with_fetch(problem: Problem, program: Program, v: int) -> Program:
    """Return the program that fetches a value before backward reads it first."""
    runs, turn = program.flat(), program.starts()[program.block_count]
    at = _next_read(problem, runs, v, turn)
    return program if at is None else program.replaced({at: [fetch_of(problem, v), runs[at]]})


def otherwise(problem: Problem, program: Program) -> Iterator[Program]:
    """Yield the programs in which one re-run or fetch is another choice, without what it alone is
    for: a fetch of what a re-run makes; what a fetch brings kept, or made again.
    """
    runs, count, producers = program.flat(), len(problem.operations), problem.producers()
    for i, first in enumerate(first_runs(runs)):
        if runs[i] >= count:
            maker = producers[runs[i] - count]
            for other in ([], [maker])[: 1 + problem.operations[maker].rerunnable]:
                yield pruned(problem, program.replaced({i: other}))
        elif not first:
            outputs = problem.operations[runs[i]].outputs
            read = [v for v in outputs if _next_read(problem, runs, v, i + 1) is not None]
            if read and all(problem.values[v].travels for v in read):
                yield pruned(problem, program.replaced({i: [fetch_of(problem, v) for v in read]}))


def pruned(problem: Problem, program: Program) -> Program:
    """Return the program without re-runs and fetches of what nothing reads before it is there."""
    return prune(with_fetches(problem), program, required=len(problem.operations))


def _next_read(problem: Problem, runs: list[int], v: int, start: int) -> int | None:
    """Return where a value is read from a position on, before it is made, or fetched, again."""
    for i in range(start, len(runs)):
        if runs[i] == fetch_of(problem, v):
            return None
        if runs[i] < len(problem.operations):
            operation = problem.operations[runs[i]]
            if v in operation.inputs:
                return i
            if v in operation.outputs:
                return None
    return None
