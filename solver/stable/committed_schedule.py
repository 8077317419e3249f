"""A schedule that was decided before, by name: of this problem, or of one that it has grown from.

Names are those of the plan file, so that an older plan can be read for a newer graph.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

NAME = "committed"
"""The strategy of a schedule that was kept, or decided again beside what was kept."""

Segments = tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True)
class Committed:
    """The names of what runs in the forward segments 0 … n-1, and in the backward ones n-1 … 0."""

    forward: Segments
    backward: Segments

    def names(self) -> tuple[str, ...]:
        """Return the operations of forward in order."""
        return tuple(chain.from_iterable(self.forward))

    def starts(self) -> tuple[str, ...]:
        """Return the first operation of each block."""
        return tuple(segment[0] for segment in self.forward if segment)

    def reruns(self) -> dict[str, tuple[str, ...]]:
        """Return the re-runs that stand before each backward operation, which stand in order."""
        forward = set(self.names())
        found: dict[str, tuple[str, ...]] = {}
        pending: list[str] = []
        for name in chain.from_iterable(self.backward):
            if name in forward:
                pending.append(name)
            else:
                found[name] = tuple(pending)
                pending = []
        return found
