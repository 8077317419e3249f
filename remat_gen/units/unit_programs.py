"""From a schedule of a joined step to what each unit runs: its program.

Re-runs of a unit stand in its own forward or backward. So a schedule found for the joined step is
put in that order first; the replay then judges it as it will run.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.capture.units.joined import call_of
from remat_gen.capture.units.unit_kinds import Kind
from remat_gen.capture.units.unit_step import UnitStep
from remat_gen.ir.costs import Cost, Costs
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, program_of
from remat_gen.solver.law.schedule import Schedule


@dataclass(frozen=True, slots=True)
class UnitRuns:
    """The operations that a call of a unit runs, by their names in its own graph."""

    forward: tuple[str, ...]
    backward: tuple[str, ...]


def within_units(step: UnitStep, problem: Problem, schedule: Schedule) -> Schedule:
    """Return the schedule with all runs of a unit in its own segments, and alike in all its calls.

    Each call of a unit is a block, with what eager does behind it.
    """
    return _scheduled(problem, _alike(step, problem, _by_call(step, problem, schedule)))


def unit_runs(step: UnitStep, problem: Problem, schedule: Schedule) -> dict[str, UnitRuns]:
    """Return what each unit runs, by its path."""
    names = [operation.name for operation in problem.operations]
    found = {}
    for path, call, parts in zip(
        step.calls, step.names, _by_call(step, problem, schedule)[1:], strict=True
    ):
        own = ([names[p] for p in part if not names[p].startswith("eager.")] for part in parts)
        found[path] = UnitRuns(*(tuple(n.removeprefix(f"{call}.") for n in part) for part in own))
    return found


def unit_schedule(
    kind: Kind, joined: Problem, path: str, runs: UnitRuns
) -> tuple[Problem, Schedule]:
    """Return a unit's own problem, and its schedule of one block."""
    found = {operation.name: operation for operation in joined.operations}
    graph = kind.traced.graph
    own = [(o.name, found[f"{path}.{o.name}"]) for o in graph.operations]
    costs = {name: Cost(o.time_us, o.workspace_bytes) for name, o in own}
    problem = problem_of(graph, Costs("", costs))
    index = {operation.name: i for i, operation in enumerate(problem.operations)}
    forward, backward = (tuple(index[n] for n in names) for names in (runs.forward, runs.backward))
    return problem, to_schedule(problem, Program((forward, backward)))


Parts = tuple[list[int], list[int]]


def _by_call(step: UnitStep, problem: Problem, schedule: Schedule) -> list[Parts]:
    """Return the runs of what comes before all units, then of each call: forward, backward.

    A first run is of its own half of the step; a re-run is of forward if its unit is not left yet.
    """
    calls = [call_of(operation.name, step.names) for operation in problem.operations]
    parts: list[Parts] = [([], []) for _ in range(len(step.names) + 1)]
    ran: set[int] = set()
    left: set[int] = set()
    for p in program_of(schedule).flat():
        operation, call = problem.operations[p], calls[p]
        again = p in ran
        ran.add(p)
        backward = operation.backward or (again and call in left)
        parts[call + 1][backward].append(p)
        if operation.name.startswith("eager.") and operation.name.endswith(".leave"):
            left.add(call)
    for part in parts:
        _order(problem, part)
    return parts


def _order(problem: Problem, parts: Parts) -> None:
    """Let a unit be entered before all that it runs, and left behind it."""
    ends = {".enter": -1, ".leave": 1, ".d_enter": -1, ".d_leave": 1}

    def place(p: int) -> int:
        name = problem.operations[p].name
        if not name.startswith("eager."):
            return 0
        return ends[name[name.rindex(".") :]]

    for part in parts:
        part.sort(key=place)  # the sort keeps the order of equals


def _alike(step: UnitStep, problem: Problem, parts: list[Parts]) -> list[Parts]:
    """Give all calls of a unit the runs of the one that holds the least."""
    if len(set(step.calls)) == len(step.calls):
        return parts
    index = {operation.name: i for i, operation in enumerate(problem.operations)}
    of: dict[str, list[int]] = {}
    for i, path in enumerate(step.calls):
        of.setdefault(path, []).append(i)
    alike = list(parts)
    for calls in of.values():
        thrifty = max(calls, key=lambda i: len(parts[i + 1][1]))  # the most re-runs
        for i in calls:
            old, new = f"{step.names[thrifty]}.", f"{step.names[i]}."
            forward, backward = (
                [index[_moved(problem.operations[p].name, old, new)] for p in part]
                for part in parts[thrifty + 1]
            )
            alike[i + 1] = forward, backward
    return alike


def _moved(name: str, old: str, new: str) -> str:
    eager = "eager." * name.startswith("eager.")
    return f"{eager}{new}{name.removeprefix('eager.').removeprefix(old)}"


def _scheduled(problem: Problem, parts: list[Parts]) -> Schedule:
    """Return the schedule of a block for each call; the first begins with what is before all."""
    (start, _), *calls = parts
    forward = [tuple(part[0]) for part in calls]
    forward[0] = (*start, *forward[0])
    program = Program((*forward, *(tuple(part[1]) for part in reversed(calls))))
    return to_schedule(problem, prune(problem, program))
