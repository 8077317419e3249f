"""Schedules written down by name, as a plan has them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from solver_problems import GptShape, gpt_like

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule, Segment
from remat_gen.solver.solve import Solution, Solver
from remat_gen.solver.stable.committed_schedule import Committed

SMALL = GptShape(batch=2, tokens=64, width=64, heads=2, vocabulary=64)


def gpt(layers: int) -> Problem:
    return gpt_like(layers, SMALL)


def renamed(problem: Problem, old: str, new: str) -> Problem:
    """Return the problem with other names of operations."""
    operations = tuple(replace(o, name=o.name.replace(old, new)) for o in problem.operations)
    return replace(problem, operations=operations)


def written(problem: Problem, schedule: Schedule) -> Committed:
    """Return a schedule by name."""
    n = schedule.block_count

    def names(segment: Segment) -> tuple[str, ...]:
        runs = (step.operation for step in segment.steps if isinstance(step, Run))
        return tuple(problem.operations[p].name for p in runs)

    forward, backward = schedule.segments[:n], schedule.segments[n:]
    return Committed(tuple(map(names, forward)), tuple(map(names, backward)))


def solved(
    problem: Problem, percent: int, committed: Committed | None = None, strategy: str = "auto"
) -> Solution:
    """Solve for a share of the plain peak."""
    solver = Solver(problem, strategy, committed=committed)
    return solver.solve(solver.plain.peak_bytes * percent // 100)


@cache
def committed(layers: int, percent: int, strategy: str = "auto") -> Committed:
    problem = gpt(layers)
    return written(problem, solved(problem, percent, strategy=strategy).schedule)
