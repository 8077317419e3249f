"""Dotted paths of modules and names of what they make: the layer that one belongs to.

A layer is a member of a list, as `h.0` is of `h`: what a model repeats. Where lists are in lists,
it is the outermost, but for stages, which are nothing but their own lists one after the other:
there `stages.2.blocks.3` is the layer. A module that forward calls several times is a layer each
time: `cell@0`, `cell@1`. So is each turn of a long loop in a module's forward, and a module in no
list that is made as another one or a member is: `stem`, `down1`, `down2`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_TURN = "@"  # before the number of a call of a module


@dataclass(frozen=True, slots=True)
class Layers:
    """Which members of lists are layers: the outermost, or those of the lists `inner` to them.

    Inner lists are given by their paths: `stages.2.blocks`; `named` are layers in no list.
    """

    inner: frozenset[str] = frozenset()
    named: frozenset[str] = frozenset()

    def of(self, path: str) -> str:
        """Return the layer of a module's path: `h.0` of `h.0.attn`, or ""."""
        found = ""
        parts = path.split(".")
        for i, part in enumerate(parts, start=1):
            here = ".".join(parts[:i])
            if part.isdigit() or _TURN in part:
                starts = not found or without_turns(".".join(parts[: i - 1])) in self.inner
            else:
                starts = not found and here in self.named
            found = here if starts else found
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


def at_turn(path: str, called: str, turn: int) -> str:
    """Return the path of what is in a module that is `called`, in the call of this number.

    Or in this turn of a loop in its forward: `@2.cell` where the model's own calls `cell`.
    """
    inside = path.removeprefix(called).removeprefix(".")
    return ".".join(filter(None, (f"{called}{_TURN}{turn}", inside)))


def pattern_of(layer: str) -> str:
    """Return what stands for a layer and those beside it: `h.*` for `h.0`, `cell@*`."""
    return re.sub(r"\d+$", "*", layer)


def numbers_in(layer: str) -> list[str]:
    """Return the numbers of a layer in lists and among calls: 2 and 5 of `core.2@5`."""
    return [part for part in re.split(rf"[.{_TURN}]", layer) if part.isdigit()]


def is_turn(layer: str) -> bool:
    """Tell whether a layer is one of several calls of a module."""
    return _TURN in layer.rpartition(".")[2]


def next_turn(layer: str, step: int) -> str:
    """Return the call of the same module that comes `step` calls later."""
    called, _, turn = layer.rpartition(_TURN)
    return f"{called}{_TURN}{int(turn) + step}"


def without_turns(path: str) -> str:
    """Return the path of the module itself: `cell.up` of `cell@2.up`."""
    return re.sub(rf"{_TURN}\d+", "", path).removeprefix(".")
