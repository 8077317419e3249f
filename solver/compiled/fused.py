"""A schedule with parts as one problem: each part is one operation, so that the replay judges it.

While a part runs, its inputs, its results and the workspace of its function are there; what is
freed while it runs is freed when it has returned.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from remat_gen.solver.compiled.parts import Ends, Part, ends_of
from remat_gen.solver.law.problem import Operation, Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment, Step


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
    ends = {part: ends_of(problem, schedule, part) for part in ordered}
    made = (_operation(problem, schedule, part, ends[part], parts[part]) for part in ordered)
    operations = (*problem.operations, *made)
    numbers = {part: len(problem.operations) + i for i, part in enumerate(ordered)}
    lists = [_steps(schedule, index, numbers) for index in range(len(schedule.segments))]
    run = sorted({p for steps in lists for p in _runs(steps)})
    renumbered = {p: i for i, p in enumerate(run)}
    forward = {p for steps in lists[: schedule.block_count] for p in _runs(steps)}
    # what forward runs inside of a part only is first run in backward, as far as calls go
    whole = replace(
        problem,
        operations=tuple(replace(operations[p], backward=p not in forward) for p in run),
    )
    segments = (
        replace(segment, steps=tuple(_renumbered(steps, renumbered)))
        for segment, steps in zip(schedule.segments, lists, strict=True)
    )
    return Fused(whole, _without_unmade(whole, schedule.block_count, segments), ordered)


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


def _operation(
    problem: Problem, schedule: Schedule, part: Part, ends: Ends, figures: PartFigures
) -> Operation:
    runs = _runs(schedule.segments[part.segment].steps[part.start : part.stop])
    return Operation(
        name=f"part of segment {part.segment} from step {part.start}",
        time_us=figures.time_us,
        workspace_bytes=figures.workspace_bytes,
        inputs=ends.inputs,
        outputs=ends.results,
        backward=False,
        keeps=tuple({v: None for p in runs for v in problem.operations[p].keeps}),
    )


def _steps(schedule: Schedule, segment: int, numbers: Mapping[Part, int]) -> list[Step]:
    """Return a segment's steps, with one run for each part and its frees behind it."""
    steps = schedule.segments[segment].steps
    found: list[Step] = []
    at = 0
    for part, number in numbers.items():
        if part.segment == segment:
            found += [*steps[at : part.start], Run(number), *map(Free, part.frees(schedule))]
            at = part.stop
    return [*found, *steps[at:]]


def _runs(steps: Iterable[Step]) -> Iterator[int]:
    return (step.operation for step in steps if isinstance(step, Run))


def _renumbered(steps: Iterable[Step], numbers: Mapping[int, int]) -> Iterator[Step]:
    for step in steps:
        yield Run(numbers[step.operation]) if isinstance(step, Run) else step


def _without_unmade(problem: Problem, count: int, segments: Iterable[Segment]) -> Schedule:
    """Return a schedule without frees of what dies inside of parts: it never was there."""
    resident: set[int] = set()
    kept = []
    for index, segment in enumerate(segments):
        if index == count:
            resident.update(problem.given)
        steps: list[Step] = []
        for step in segment.steps:
            if isinstance(step, Run):
                resident.update(problem.operations[step.operation].outputs)
            elif step.value not in resident:
                continue
            else:
                resident.remove(step.value)
            steps.append(step)
        kept.append(replace(segment, steps=tuple(steps)))
    return Schedule(tuple(kept))
