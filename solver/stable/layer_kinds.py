"""Layers of two versions of a model: which one is which, by what they are made of.

Names alone would take a layer that was inserted for the one that stood in its place: `h.2` is
`h.3` now. Layers are put side by side in order, as many as possible (a longest common subsequence);
of several ways the one that parts the fewest blocks, then the one in which most keep their name, as
the text of a generated file then stays.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from remat_gen.ir.paths import Layers

Kind = tuple[str, ...]
"""What a layer is made of: the names of its operations, without its own."""

_Score = tuple[int, int, int]  # layers matched, less the blocks parted, names kept


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
    """Return the old layer of each new one that has one; layers in `starting` begin a block."""
    table = _Table(old, new, starting)
    pairs, i, j = {}, 0, 0
    while i < len(old) and j < len(new):
        if table.best[i][j] == table.skipping_old(i, j):
            i += 1
        elif table.best[i][j] == table.skipping_new(i, j):
            j += 1
        else:
            pairs[table.after[j][0]] = table.before[i][0]
            i, j = i + 1, j + 1
    return pairs


class _Table:
    """The best score of what is left of both versions, for every pair of ends."""

    def __init__(
        self, old: Mapping[str, Kind], new: Mapping[str, Kind], starting: Collection[str]
    ) -> None:
        self.before, self.after, self.starting = list(old.items()), list(new.items()), starting
        self.best: list[list[_Score]] = [[(0, 0, 0)] * (len(new) + 1) for _ in range(len(old) + 1)]
        for i in range(len(old) - 1, -1, -1):
            for j in range(len(new) - 1, -1, -1):
                self.best[i][j] = max(
                    self.skipping_old(i, j), self.skipping_new(i, j), self._pairing(i, j)
                )

    def skipping_old(self, i: int, j: int) -> _Score:
        """Return the score where an old layer is gone."""
        return self.best[i + 1][j]

    def skipping_new(self, i: int, j: int) -> _Score:
        """Return the score where a new layer was inserted; inside of a block it parts it."""
        count, parted, same = self.best[i][j + 1]
        return count, parted - (self.before[i][0] not in self.starting), same

    def _pairing(self, i: int, j: int) -> _Score:
        (old, old_kind), (new, new_kind) = self.before[i], self.after[j]
        if old_kind != new_kind:
            return (-1, 0, 0)
        count, parted, same = self.best[i + 1][j + 1]
        return count + 1, parted, same + (old == new)
