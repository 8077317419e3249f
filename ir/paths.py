"""Dotted paths of modules and names of what they make: the layer that one belongs to.

A layer is a member of a list, as `h.0` is of `h`: what a model repeats. Where lists are in lists,
it is the outermost, but for stages, which are nothing but their own lists one after the other:
there `stages.2.blocks.3` is the layer.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Layers:
    """Which members of lists are layers: the outermost, or those of the lists `inner` to them.

    Inner lists are given by their paths: `stages.2.blocks`.
    """

    inner: frozenset[str] = frozenset()

    def of(self, path: str) -> str:
        """Return the layer of a module's path: `h.0` of `h.0.attn`, or ""."""
        found = ""
        parts = path.split(".")
        for i, part in enumerate(parts, start=1):
            if part.isdigit() and (not found or ".".join(parts[: i - 1]) in self.inner):
                found = ".".join(parts[:i])
        return found

    def holding(self, name: str) -> str:
        """Return the layer that owns a parameter, operation or value: `h.0` of `h.0.up.weight`.

        The last part is the name itself: a parameter `2` of a list is in no layer, which is "".
        """
        return self.of(name.rpartition(".")[0])

    def all_holding(self, names: Iterable[str]) -> list[str]:
        """Return the layers that own some parameters, each once, in order; "" for those in none."""
        return list(dict.fromkeys(map(self.holding, names)))

    def relative(self, name: str) -> str:
        """Return the path of a parameter, operation or value from its layer: `up.weight`."""
        return name.removeprefix(self.holding(name)).removeprefix(".")


OUTERMOST = Layers()
