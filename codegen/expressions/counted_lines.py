"""Lines that differ in numbers which count up are said once: in a loop, in a row of a table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

_LEAST = 3  # times
_LONGEST = 8  # lines that are repeated together
# a path, quoted or as code has it, or a number that a block is handed
_COUNTED = re.compile(r'"[\w.@]+"|\bself(?:\.[^\W\d]\w*|\[\d+\])+|(?<=, )\w+=\d+(?=[,)])')
NUMBER = re.compile(r'(?<=[".@\[=])\d+(?=[."@\]]|$)')  # of a member of a list, in its path

Line: TypeAlias = tuple[str, tuple[int, ...]]
"""What a line says but for the numbers in its paths and of its arguments, and these."""


@dataclass(frozen=True, slots=True)
class Repeat:
    """Lines from the `first` on that come `times`; by what each of their numbers rises, and how."""

    first: int
    times: int
    rises: tuple[tuple[int, ...], ...]

    @property
    def step(self) -> int:
        """Return by what numbers rise, 0 where none does."""
        return max((rise for rises in self.rises for rise in rises), default=0)

    @property
    def lines(self) -> int:
        """Return how many lines are repeated together."""
        return len(self.rises)


def _line_of(text: str) -> Line:
    """Take a line apart: the numbers in its paths, which are members of lists, and arguments."""
    numbers = [int(n) for path in _COUNTED.findall(text) for n in NUMBER.findall(path)]
    return _COUNTED.sub(lambda path: NUMBER.sub("<number>", path[0]), text), tuple(numbers)


def repeats(lines: Sequence[Line]) -> Iterator[Repeat]:
    """Yield all lines in order, as many as possible of them together, and others once."""
    first = 0
    while first < len(lines):
        found = [_repeat(lines, first, count) for count in range(1, _LONGEST + 1)]
        best = max(found, key=lambda repeat: repeat.lines * (repeat.times - 1))
        few = best.times < _LEAST or best.times * best.lines <= _LEAST
        yield (best := Repeat(first, 1, ((),)) if few else best)
        first += best.lines * best.times


def _repeat(lines: Sequence[Line], first: int, count: int) -> Repeat:
    cycle = zip(lines[first : first + count], lines[first + count :], strict=False)
    rises = [_rises(a, b) for a, b in cycle]
    steps = {rise for found in rises for rise in found or ()} - {0}
    if len(rises) < count or None in rises or len(steps) > 1 or min(steps, default=1) < 0:
        return Repeat(first, 1, ((),) * count)
    at = first + count
    while at < len(lines) and _rises(lines[at - count], lines[at]) == rises[(at - first) % count]:
        at += 1
    return Repeat(first, (at - first) // count, tuple(found or () for found in rises))


def _rises(a: Line, b: Line) -> tuple[int, ...] | None:
    """Return by what the numbers rise from one line to another that says the same, else None."""
    return tuple(n - m for m, n in zip(a[1], b[1], strict=True)) if a[0] == b[0] else None


def looped(calls: Sequence[str], variable: str) -> Iterator[str]:
    """Yield calls as lines of code, repeated ones in a loop over the members of a list."""
    lines = [_line_of(call) for call in calls]
    for repeat in repeats(lines):
        cycle = range(repeat.first, repeat.first + repeat.lines)
        if repeat.times == 1:
            yield from (calls[i] for i in cycle)
            continue
        numbers = [
            zip(lines[i][1], own, strict=True) for i, own in zip(cycle, repeat.rises, strict=True)
        ]
        start = min((n for own in numbers for n, rise in own if rise), default=0)
        stop, step = start + repeat.times * max(repeat.step, 1), repeat.step
        bounds = [str(start)] * (start > 0 or step > 1) + [str(stop)] + [str(step)] * (step > 1)
        yield f"for {variable} in range({', '.join(bounds)}):"
        for i, rises in zip(cycle, repeat.rises, strict=True):
            yield f"    {_in_loop(calls[i], iter(rises), variable, start)}"


def _in_loop(call: str, rises: Iterator[int], variable: str, start: int) -> str:
    """Write the numbers that rise as the loop's variable, or as what is so much above it."""

    def number(found: re.Match[str]) -> str:
        above = int(found[0]) - start
        text = f"{variable}{f' + {above}' if above else ''}"
        quoted = found.string[0] == '"'
        return (f"{{{text}}}" if quoted else text) if next(rises) else found[0]

    def path(found: re.Match[str]) -> str:
        text = NUMBER.sub(number, found[0])
        return f"f{text}" if text != found[0] and text[0] == '"' else text

    return _COUNTED.sub(path, call)
