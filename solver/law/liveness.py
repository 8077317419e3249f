"""From runs to a schedule: drop re-runs that nobody needs, free every value as soon as it is dead.

Both follow from one walk from the end that carries the set of values needed later *as they are*: an
operation's outputs leave the set where it runs, its inputs enter it.
"""

from __future__ import annotations

from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.program import Program, first_runs
from remat_gen.solver.law.schedule import Free, Run, Schedule, Step, schedule_of


def prune(problem: Problem, program: Program, required: int | None = None) -> Program:
    """Return the program without re-runs whose outputs are not read before they are made again.

    Of operations from `required` on, if that is given, the first run may go as well.
    """
    runs = program.flat()
    firsts = first_runs(runs)
    unread: dict[int, tuple[int, ...]] = {}
    needed: set[int] = set()
    for position in range(len(runs) - 1, -1, -1):
        operation = problem.operations[runs[position]]
        first = firsts[position] and (required is None or runs[position] < required)
        if not first and needed.isdisjoint(operation.outputs):
            unread[position] = ()
            continue
        needed.difference_update(operation.outputs)
        needed.update(operation.inputs)
    return program.replaced(unread)


def to_schedule(problem: Problem, program: Program) -> Schedule:
    """Return the schedule that runs a program and frees every value as soon as it is dead."""
    needed: set[int] = set()
    reversed_segments: list[list[Step]] = []
    for segment in reversed(program.segments):
        steps: list[Step] = []
        for p in reversed(segment):
            steps.extend(Free(v) for v in reversed(_dead_after(problem, p, needed)))
            steps.append(Run(p))
            needed.difference_update(problem.operations[p].outputs)
            needed.update(problem.operations[p].inputs)
        reversed_segments.append(steps[::-1])
    lists = reversed_segments[::-1]
    n = program.block_count
    if n:
        read = {v for operation in problem.operations for v in operation.inputs}
        unread = (v for v in problem.given if v not in read)
        lists[n][:0] = [Free(v) for v in unread if problem.values[v].held is Held.FREE]
    return schedule_of(lists)


def _dead_after(problem: Problem, p: int, needed: set[int]) -> list[int]:
    operation = problem.operations[p]
    touched = dict.fromkeys(operation.inputs + operation.outputs)
    return [v for v in touched if v not in needed and problem.values[v].held is Held.FREE]
