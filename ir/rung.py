"""A rung: the steps that one of a file's schedules is for, by their lengths and free memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from remat_gen.ir.byte_text import exact
from remat_gen.ir.size import Length


@dataclass(frozen=True, slots=True)
class Rung:
    """A condition on a step: each length in `limits` is at most so long.

    With `free_bytes` as much memory is free when it begins, which its schedule may then take.
    """

    limits: Mapping[str, int]
    free_bytes: int = 0

    def __str__(self) -> str:
        """Return `length <= 768`, several conditions joined by `and`: `free >= 9GB`."""
        parts = [f"{name} <= {limit}" for name, limit in self.limits.items()]
        parts += [f"free >= {exact(self.free_bytes)}"] if self.free_bytes else []
        return " and ".join(parts)

    @property
    def words(self) -> tuple[str, ...]:
        """Return it for names, `to 768`, `to 8 by 512 in 9GB`."""
        limits = " by ".join(map(str, self.limits.values()))
        words = ("to", *limits.split()) if limits else ()
        return (*words, "in", exact(self.free_bytes)) if self.free_bytes else words

    def numbers(self, lengths: Iterable[Length]) -> tuple[int, ...]:
        """Return the largest lengths that the rung admits, in the order of the graph's."""
        return tuple(min(n.maximum, self.limits.get(n.name, n.maximum)) for n in lengths)

    def within(self, other: Rung) -> bool:
        """Tell whether another rung admits all steps that this one does."""
        return self.free_bytes >= other.free_bytes and all(
            self.limits.get(name, limit + 1) <= limit for name, limit in other.limits.items()
        )
