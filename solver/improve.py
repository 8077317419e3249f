"""Local improvement on exact figures: use the slack that slots and persistent options left.

A re-run is left out, and with it all re-runs that only served it, where its result fits in memory
until it is read. Every trial is measured as a whole. Work is bounded by counts, never by time, so
that the result does not depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from remat_gen.solver.liveness import prune
from remat_gen.solver.measure import Measure, measure
from remat_gen.solver.problem import Held, Problem
from remat_gen.solver.program import Program, first_runs

WORK = 200_000  # runs measured in all, per improvement


@dataclass(frozen=True, slots=True)
class Candidate:
    """A program with its figures."""

    peak_bytes: int
    time_us: float
    program: Program

    def better_than(self, other: Candidate) -> bool:
        """Whether this one is quicker, or as quick with a lower peak."""
        return (self.time_us, self.peak_bytes) < (other.time_us, other.peak_bytes)


def candidate(problem: Problem, program: Program) -> Candidate:
    """Measure a program."""
    figures = measure(problem, program)
    return Candidate(figures.peak_bytes, figures.time_us, program)


def retain_more(problem: Problem, start: Candidate, budget_bytes: int) -> Candidate:
    """Leave out re-runs, the most expensive first, while the peak fits the budget."""
    best = start
    work = WORK
    while True:
        figures = measure(problem, best.program)
        improved = None
        for position in _removable(problem, best.program, figures, budget_bytes):
            work -= len(figures.inside)
            trial = candidate(problem, without(problem, best.program, position))
            if trial.peak_bytes <= budget_bytes and trial.time_us < best.time_us:
                improved = trial
                break
            if work < 0:
                return best
        if improved is None:
            return best
        best = improved


def without(problem: Problem, program: Program, position: int) -> Program:
    """Return the program without one run and without the re-runs that only served it."""
    runs: list[int | None] = list(program.flat())
    runs[position] = None
    return prune(problem, program.refilled(runs))


def _removable(
    problem: Problem, program: Program, figures: Measure, budget_bytes: int
) -> list[int]:
    """Return the re-runs whose results may fit in the slack, by falling time."""
    runs = program.flat()
    slack = budget_bytes - figures.inside
    last_touch: dict[int, int] = {}
    found = []
    next_read = _next_reads(problem, runs)
    for position, (p, first) in enumerate(zip(runs, first_runs(runs), strict=True)):
        operation = problem.operations[p]
        if not first:
            wanted = [v for v in operation.outputs if next_read.get((position, v))]
            need = sum(problem.values[v].nbytes for v in wanted)
            since = min((last_touch[v] for v in wanted if v in last_touch), default=position)
            freed = sum(
                problem.values[v].nbytes
                for v in operation.inputs
                if problem.values[v].held is Held.FREE
            )
            room = int(np.min(slack[since + 1 : position + 1], initial=2**62))
            if need <= room + freed:
                found.append((-operation.time_us, position))
        last_touch.update(dict.fromkeys(operation.inputs + operation.outputs, position))
    return [position for _, position in sorted(found)]


def _next_reads(problem: Problem, runs: list[int]) -> dict[tuple[int, int], int]:
    """Return for each made value (position, v) its first read before it is made again."""
    reads: dict[tuple[int, int], int] = {}
    upcoming: dict[int, int] = {}
    for position in range(len(runs) - 1, -1, -1):
        operation = problem.operations[runs[position]]
        for v in operation.outputs:
            if v in upcoming:
                reads[position, v] = upcoming.pop(v)
        upcoming.update(dict.fromkeys(operation.inputs, position))
    return reads
