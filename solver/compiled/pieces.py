"""Which stretches of a part are worth compiling: its pieces, and the cheapest way through them.

A part is cut where a kernel of its own stands, as a softmax's: what a compiler makes of it may be
slower, and what stands before and behind it can still fuse. Of the stretches between cuts, whose
costs are known, dynamic programming takes the cheapest that do not overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from remat_gen.solver.compiled.parts import Part
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Run, Schedule

# Of five pieces all 15 stretches are tried; of more, those of both halves, and the whole.
_MOST_PIECES = 5


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
