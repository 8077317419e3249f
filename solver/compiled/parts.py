"""Parts of a schedule that are compiled together: runs of fusible operations, one after another.

A part stands between two calls that cannot be compiled, within one block's forward or backward. It
is cut where a kernel of its own stands, as a softmax's: what a compiler makes of it may be slower,
and what stands before and behind it can still fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.schedule import Free, Run, Schedule, Step

# Of five pieces all 15 stretches are tried; of more, those of both halves, and the whole.
_MOST_PIECES = 5


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """The steps `start` … `stop` - 1 of a segment: from one run to another, frees between them."""

    segment: int
    start: int
    stop: int

    def runs(self, schedule: Schedule) -> tuple[int, ...]:
        return tuple(s.operation for s in self._steps(schedule) if isinstance(s, Run))

    def frees(self, schedule: Schedule) -> tuple[int, ...]:
        return tuple(s.value for s in self._steps(schedule) if isinstance(s, Free))

    def halves(self, schedule: Schedule) -> tuple[Part, ...]:
        """Return the two parts that it falls into; none where it is a single operation."""
        steps = schedule.segments[self.segment].steps
        runs = [i for i in range(self.start, self.stop) if isinstance(steps[i], Run)]
        middle = len(runs) // 2
        if not middle:
            return ()
        first = Part(self.segment, self.start, runs[middle - 1] + 1)
        return first, Part(self.segment, runs[middle], self.stop)

    def _steps(self, schedule: Schedule) -> tuple[Step, ...]:
        return schedule.segments[self.segment].steps[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class Ends:
    """What goes into a part and what leaves it, by index of the value, in order of appearance."""

    inputs: tuple[int, ...]
    results: tuple[int, ...]


def longest_parts(
    problem: Problem, schedule: Schedule, fusible: Sequence[bool]
) -> tuple[Part, ...]:
    """Return the longest runs of fusible operations, in order; a single operation is one too.

    `fusible` tells for each operation, by index, whether it can be part of what is compiled.
    """
    finder = _Finder(problem, fusible)
    return tuple(
        part
        for index, segment in enumerate(schedule.segments)
        for part in finder.parts(index, segment.steps)
    )


def ends_of(problem: Problem, schedule: Schedule, part: Part) -> Ends:
    """Return what a part reads of others, and what others read of it."""
    made: dict[int, None] = {}
    inputs: dict[int, None] = {}
    for p in part.runs(schedule):
        operation = problem.operations[p]
        inputs.update((v, None) for v in operation.inputs if v not in made)
        made.update(dict.fromkeys(operation.outputs))
    after = schedule.segments[part.segment].steps[part.stop :]
    frees = takewhile(lambda step: isinstance(step, Free), after)
    dying = {*part.frees(schedule), *(step.value for step in frees if isinstance(step, Free))}
    held = problem.values
    results = (v for v in made if held[v].held is not Held.FREE or v not in dying)
    return Ends(tuple(inputs), tuple(results))


@dataclass(slots=True)
class _Finder:
    """Walks through a schedule with what is resident: a name stands for one value in a part.

    What was freed and is made again is another value, and an operation that makes again what is
    there hands out a part of its results only: both stay outside.
    """

    problem: Problem
    fusible: Sequence[bool]
    resident: set[int] = field(default_factory=set)
    seen: set[int] = field(default_factory=set)  # values that the part read or made

    def parts(self, segment: int, steps: tuple[Step, ...]) -> Iterator[Part]:
        start, stop = -1, -1
        for index, step in enumerate(steps):
            if not isinstance(step, Run):  # nothing that is compiled is sent to the host
                self.resident.discard(step.value)
                continue
            if start >= 0 and not self._goes_on(step.operation):
                yield Part(segment, start, stop)
                start = -1
            operation = self.problem.operations[step.operation]
            if self._may_join(step.operation):
                if start < 0:
                    start = index
                    self.seen.clear()
                stop = index + 1
                self.seen.update(operation.inputs, operation.outputs)
            self.resident.update(operation.outputs)
        if start >= 0:
            yield Part(segment, start, stop)

    def _may_join(self, p: int) -> bool:
        return self.fusible[p] and self.resident.isdisjoint(self.problem.operations[p].outputs)

    def _goes_on(self, p: int) -> bool:
        return self._may_join(p) and self.seen.isdisjoint(self.problem.operations[p].outputs)


def pieces_of(
    problem: Problem, schedule: Schedule, part: Part, own_kernel: Sequence[bool]
) -> tuple[Part, ...]:
    """Return a part in pieces, in order.

    It is cut beside operations with a kernel of their own, told by index, and where what follows
    shares no value with what stands before.
    """
    steps = schedule.segments[part.segment].steps
    moments = [i for i in range(part.start, part.stop) if isinstance(steps[i], Run)]
    runs = part.runs(schedule)
    touched = [{*problem.operations[p].inputs, *problem.operations[p].outputs} for p in runs]
    cuts = [0]
    for k in range(1, len(runs)):
        unrelated = set().union(*touched[:k]).isdisjoint(set().union(*touched[k:]))
        if own_kernel[runs[k - 1]] or own_kernel[runs[k]] or unrelated:
            cuts.append(k)
    ends = [*cuts[1:], len(runs)]
    return tuple(
        Part(part.segment, moments[first], moments[end - 1] + 1)
        for first, end in zip(cuts, ends, strict=True)
    )


def stretches(pieces: Sequence[Part]) -> Iterator[Part]:
    """Return the stretches of neighbouring pieces that are tried, each once."""
    if len(pieces) <= _MOST_PIECES:
        for first in range(len(pieces)):
            for last in range(first, len(pieces)):
                yield joined(pieces[first], pieces[last])
    else:
        middle = len(pieces) // 2
        yield joined(pieces[0], pieces[-1])
        yield from stretches(pieces[:middle])
        yield from stretches(pieces[middle:])


def joined(first: Part, last: Part) -> Part:
    return Part(first.segment, first.start, last.stop)


def cheapest(
    pieces: Sequence[Part],
    apart_us: Callable[[Part], float],
    compiled_us: Callable[[Part], float | None],
) -> tuple[Part, ...]:
    """Return the stretches to compile, so that all pieces together take the least time.

    `apart_us` is a piece's time where it is not compiled, `compiled_us` a stretch's where it is;
    None where it must not be. Of equals the fewest stretches are taken.
    """
    best: list[tuple[float, int, tuple[Part, ...]]] = [(0.0, 0, ())]
    for end, piece in enumerate(pieces):
        before_us, count, taken = best[end]
        ways = [(before_us + apart_us(piece), count, taken)]
        for first in range(end + 1):
            stretch = joined(pieces[first], piece)
            time_us = compiled_us(stretch)
            if time_us is not None:
                before_us, count, taken = best[first]
                ways.append((before_us + time_us, count + 1, (*taken, stretch)))
        best.append(min(ways, key=lambda way: way[:2]))
    return best[-1][2]
