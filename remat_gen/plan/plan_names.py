"""Schedules to the names in a plan, and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile

from remat_gen.capture.units.joined import ENTER, LEAVE
from remat_gen.codegen.module.programs import Program
from remat_gen.ir.costs import Costs
from remat_gen.ir.errors import GraphError
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import Block, Plan, PlannedRung, PlannedSegment
from remat_gen.ir.steps import FETCH, FREE, RUN, SEND, read_step, runs_in, step_line
from remat_gen.problem.rung_problems import rung_graph, rung_problem
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import program_of
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Segment, Send, Step
from remat_gen.solver.stable.committed_schedule import Committed

_VERBS: dict[type, str] = {Run: RUN, Free: FREE, Send: SEND, Fetch: FETCH}


def planned_schedule(problem: Problem, schedule: Schedule) -> tuple[PlannedSegment, ...]:
    """Write a schedule down by name, in the lines of `ir.steps`."""
    return tuple(
        PlannedSegment(s.block, s.backward, tuple(_lines(problem, s.steps)))
        for s in schedule.segments
    )


def _lines(problem: Problem, steps: tuple[Step, ...]) -> list[str]:
    lines: list[str] = []
    for kind, group in groupby(steps, key=type):
        names = [_name(problem, step) for step in group]
        each = [[name] for name in names] if kind is Run else [names]
        lines += [step_line(_VERBS[kind], named) for named in each]
    return lines


def _name(problem: Problem, step: Step) -> str:
    if isinstance(step, Run):
        return problem.operations[step.operation].name
    return problem.values[step.value].name


def schedule_of(problem: Problem, planned: tuple[PlannedSegment, ...]) -> Schedule:
    """Read a plan's schedule for a problem.

    Raises:
        GraphError: a step is not written as it should be, or names what the problem lacks.
    """
    operations = {operation.name: i for i, operation in enumerate(problem.operations)}
    values = {value.name: i for i, value in enumerate(problem.values)}

    def steps(line: str) -> list[Step]:
        verb, names = read_step(line)
        if verb == RUN and len(names) == 1 and names[0] in operations:
            return [Run(operations[names[0]])]
        kinds: dict[str, type[Free | Send | Fetch]] = {FREE: Free, SEND: Send, FETCH: Fetch}
        if verb in kinds and names and all(name in values for name in names):
            return [kinds[verb](values[name]) for name in names]
        raise GraphError(f"the schedule's step {line!r} is none of this graph")

    return Schedule(
        tuple(
            Segment(s.block, s.backward, tuple(step for line in s.steps for step in steps(line)))
            for s in planned
        )
    )


def programs_of_rungs(graph: Graph, plan: Plan, here: Problem) -> tuple[Program, ...]:
    """Return what a plan runs on each of its rungs, in the order in which a step asks them.

    Raises:
        GraphError: a schedule is none of this graph, or an operation has no cost.
        IllegalScheduleError: it cannot be run.
    """
    return tuple(
        program_of_rung(rung_graph(graph, planned.rung), plan, here, planned)
        for planned in plan.rungs
    )


def program_of_rung(there: Graph, plan: Plan, here: Problem, planned: PlannedRung) -> Program:
    """Return what a plan runs on one of its rungs, whose graph is `there`.

    `here` is the problem of the whole range.
    """
    costs = Costs(plan.device, planned.costs, plan.alignment_bytes)
    problem = rung_problem(there, costs, here)
    schedule = schedule_of(problem, planned.schedule)
    replay(problem, schedule)
    return Program(problem, schedule, planned.rung)


def committed_runs(planned: tuple[PlannedSegment, ...]) -> Committed:
    """Return what a plan runs in each segment, by name, whatever graph it is of."""
    n = len(planned) // 2
    runs = tuple(runs_in(segment.steps) for segment in planned)
    return Committed(runs[:n], runs[n:])


def blocks_of(graph: Graph, problem: Problem, schedule: Schedule) -> tuple[Block, ...]:
    """Say for each block what its forward retains and what its backward runs again."""
    runs, n = program_of(schedule).segments, schedule.block_count
    ran = {p for own in runs[:n] for p in own}
    before = (step for segment in schedule.segments[:n] for step in segment.steps)
    freed = {step.value for step in before if isinstance(step, Free)}
    found = []
    for own, back in zip(runs[:n], reversed(runs[n:]), strict=True):
        kept = (v for p in own for v in problem.operations[p].outputs if v not in freed)
        values = map(problem.values.__getitem__, kept)
        again = tuple(problem.operations[p].name for p in back if p in ran)
        retained = {value.name: value.nbytes for value in values}
        found.append(Block(_title(graph, own), len(own), retained, again))
    return tuple(found)


def _title(graph: Graph, runs: Sequence[int]) -> str:
    """Return the module path that the block's operations share, or its first operation's name."""
    every = [graph.operations[p] for p in runs]
    operations = [o for o in every if o.target not in (ENTER, LEAVE)] or every
    if not operations:
        return ""
    columns = zip(*(operation.module.split(".") for operation in operations), strict=False)
    shared = takewhile(lambda column: len(set(column)) == 1, columns)
    return ".".join(column[0] for column in shared) or operations[0].name
