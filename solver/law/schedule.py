"""One schedule type for every strategy: operations run, values freed and moved, in blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Run:
    """Run an operation (its index): the first time, or again."""

    operation: int


@dataclass(frozen=True, slots=True)
class Free:
    """Free a value (its index)."""

    value: int


@dataclass(frozen=True, slots=True)
class Send:
    """Queue the copy of a value (its index) to the host; its memory stays until it is freed."""

    value: int


@dataclass(frozen=True, slots=True)
class Fetch:
    """Allocate a value (its index) again, and queue its copy from the host."""

    value: int


Step: TypeAlias = Run | Free | Send | Fetch


@dataclass(frozen=True, slots=True)
class Segment:
    """What one block does in forward or in backward; re-runs of any block may stand in backward.

    Values are sent in forward and fetched in backward.
    """

    block: int
    backward: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Forward segments of blocks 0 … n-1, then backward segments of blocks n-1 … 0."""

    segments: tuple[Segment, ...]

    @property
    def block_count(self) -> int:
        return len(self.segments) // 2


def schedule_of(steps: Sequence[Sequence[Step]]) -> Schedule:
    """Return the schedule of the steps of each segment, in their order."""
    n = len(steps) // 2
    marks = [(b, False) for b in range(n)] + [(b, True) for b in reversed(range(n))]
    return Schedule(tuple(Segment(*mark, tuple(s)) for mark, s in zip(marks, steps, strict=False)))
