"""A rung: the steps that one of a file's schedules is for, by the lengths of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remat_gen.ir.size import Length


@dataclass(frozen=True, slots=True)
class Rung:
    """A condition on a step: each length in `limits` is at most so long."""

    limits: Mapping[str, int]

    def __str__(self) -> str:
        """Return `length <= 768`, several limits joined by `and`."""
        return " and ".join(f"{name} <= {limit}" for name, limit in self.limits.items())

    def numbers(self, lengths: Iterable[Length]) -> tuple[int, ...]:
        """Return the largest lengths that the rung admits, in the order of the graph's."""
        return tuple(min(n.maximum, self.limits.get(n.name, n.maximum)) for n in lengths)

    def within(self, other: Rung) -> bool:
        """Tell whether another rung admits all steps that this one does."""
        return all(
            self.limits.get(name, limit + 1) <= limit for name, limit in other.limits.items()
        )
