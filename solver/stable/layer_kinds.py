"""Layers of two versions of a model: which one is which, by what they are made of.

Names alone would take a layer that was inserted for the one that stood in its place: `h.2` is
`h.3` now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from remat_gen.ir.paths import Layers

Kind = tuple[str, ...]
"""What a layer is made of: the names of its operations, without its own."""

_Pairs: TypeAlias = "tuple[tuple[str, str], _Pairs] | None"


def kinds_of(names: Iterable[str], layers: Layers) -> dict[str, Kind]:
    """Return the layers in the order of their first operations, and what each is made of."""
    found: dict[str, list[str]] = {}
    for name in names:
        if layer := layers.holding(name):
            found.setdefault(layer, []).append(name.removeprefix(layer))
    return {layer: tuple(inside) for layer, inside in found.items()}


def matched(
    old: Mapping[str, Kind], new: Mapping[str, Kind], starting: Collection[str]
) -> dict[str, str]:
    """Return the old layer of each new one that has one; layers in `starting` begin a block.

    A longest common subsequence; of several that of the fewest blocks parted, then of most names
    kept, as the text of a generated file then stays.
    """
    # for what is left of both: layers matched, less the blocks parted, names kept; and the pairs
    nothing: tuple[tuple[int, int, int], _Pairs] = (0, 0, 0), None
    after = [*new.items()][::-1]
    below = [nothing] * (len(after) + 1)
    for layer, kind in [*old.items()][::-1]:
        row = [nothing]
        for j, (other, made_of) in enumerate(after):
            (count, parted, same), pairs = row[-1]  # an inserted layer inside of a block parts it
            ways = [below[j + 1], ((count, parted - (layer not in starting), same), pairs)]
            if kind == made_of:
                (count, parted, same), pairs = below[j]
                score = count + 1, parted, same + (layer == other)
                ways.append((score, ((other, layer), pairs)))
            row.append(max(ways, key=lambda way: way[0]))
        below = row
    found, pairs = {}, below[-1][1]
    while pairs is not None:
        (other, layer), pairs = pairs
        found[other] = layer
    return found
