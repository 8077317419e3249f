"""A schedule with parts as one problem: each part is one operation, so that the replay judges it.

While a part runs, its inputs, its results and the workspace of its function are there; what is
freed while it runs is freed when it has returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from remat_gen.solver.compiled.parts import Part, ends_of
from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Operation, Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Run, Schedule


@dataclass(frozen=True, slots=True)
class PartFigures:
    """What a compiled part takes; `workspace_bytes` beyond its results."""

    time_us: float
    workspace_bytes: int


@dataclass(frozen=True, slots=True)
class Fused:
    """A problem of calls: the operations that run outside of parts, then one for each part."""

    problem: Problem
    schedule: Schedule
    parts: tuple[Part, ...]

    def part_at(self, operation: int) -> Part | None:
        """Return the part that an operation of the problem stands for, if it does."""
        index = operation - (len(self.problem.operations) - len(self.parts))
        return self.parts[index] if index >= 0 else None


def fuse(problem: Problem, schedule: Schedule, parts: Mapping[Part, PartFigures]) -> Fused:
    """Return the problem and the schedule in which each part is one operation."""
    ordered = tuple(sorted(parts))
    made = (_operation(problem, schedule, part, parts[part]) for part in ordered)
    operations = (*problem.operations, *made)
    numbers = {part: len(problem.operations) + i for i, part in enumerate(ordered)}
    lists = [_calls(schedule, index, numbers) for index in range(len(schedule.segments))]
    run = sorted({p for calls in lists for p in calls})
    renumbered = {p: i for i, p in enumerate(run)}
    forward = {p for calls in lists[: schedule.block_count] for p in calls}
    # what forward runs inside of a part only is first run in backward, as far as calls go
    whole = replace(
        problem,
        operations=tuple(replace(operations[p], backward=p not in forward) for p in run),
    )
    program = Program(tuple(tuple(renumbered[p] for p in calls) for calls in lists))
    return Fused(whole, to_schedule(whole, program), ordered)


def replay_fused(
    problem: Problem, schedule: Schedule, parts: Mapping[Part, PartFigures]
) -> tuple[Replay, Replay]:
    """Replay a schedule with parts, and as a step that starts without `.grad`.

    Which operations run again is said of the schedule, in parts or not.
    """
    fused, reruns = fuse(problem, schedule, parts), replay(problem, schedule).reruns
    figures = replay(fused.problem, fused.schedule)
    without = replay(fused.problem, fused.schedule, keep_gradients=True)
    return replace(figures, reruns=reruns), replace(without, reruns=reruns)


def _operation(problem: Problem, schedule: Schedule, part: Part, figures: PartFigures) -> Operation:
    ends = ends_of(problem, schedule, part)
    return Operation(
        name=f"part of segment {part.segment} from step {part.start}",
        time_us=figures.time_us,
        workspace_bytes=figures.workspace_bytes,
        inputs=ends.inputs,
        outputs=ends.results,
        backward=False,
        keeps=tuple({v: None for p in part.runs(schedule) for v in problem.operations[p].keeps}),
    )


def _calls(schedule: Schedule, segment: int, numbers: Mapping[Part, int]) -> list[int]:
    """Return what a segment runs, with one number for each part."""
    own = {part: number for part, number in numbers.items() if part.segment == segment}
    instead = {part.start: number for part, number in own.items()}
    inside = {i for part in own for i in range(part.start, part.stop)}
    return [
        instead.get(i, step.operation)
        for i, step in enumerate(schedule.segments[segment].steps)
        if isinstance(step, Run) and (i in instead or i not in inside)
    ]
