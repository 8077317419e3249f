"""One schedule type for every strategy: operations run and values freed, in blocks."""

from __future__ import annotations

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


Step: TypeAlias = Run | Free


@dataclass(frozen=True, slots=True)
class Segment:
    """What one block does in forward or in backward; re-runs of any block may stand in backward."""

    block: int
    backward: bool
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Schedule:
    """Forward segments of blocks 0 … n-1, then backward segments of blocks n-1 … 0."""

    segments: tuple[Segment, ...]

    @property
    def block_count(self) -> int:
        """Return the number of blocks."""
        return len(self.segments) // 2
