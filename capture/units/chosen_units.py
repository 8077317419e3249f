"""Which submodules are worth planning: repeated layers, else what can be planned in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from torch import nn

from remat_gen.capture.units.patterns import CONTAINERS, matches
from remat_gen.capture.units.watched_modules import Watched

_WORTHWHILE = 0.02  # of what the model's modules keep for backward
_LISTS = (*CONTAINERS, nn.Sequential)


@dataclass(slots=True)
class Choice:
    """A choice of units by what runs of forward have shown.

    `seen` are runs with other weights and other random numbers: the first is the model's own.
    Modules that a run calls with other arguments than another get sizes of values, or change.
    `refused` are those that cannot be traced; `idle` have no backward, so that nothing in them has.
    """

    model: nn.Module
    seen: Sequence[Watched]
    refused: set[str] = field(default_factory=set)
    idle: set[str] = field(default_factory=set)
    _modules: dict[str, nn.Module] = field(init=False)
    _alike: dict[str, list[str]] = field(init=False)  # paths by pattern
    _varying: set[str] = field(init=False)
    _worth: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        self._modules = dict(self.model.named_modules())
        paths = self._modules
        self._alike = _by_pattern(paths)
        self._varying = {
            starred(path)
            for path in paths
            if len({layout for run in self.seen for layout in run.layouts.get(path, ())}) > 1
        }
        called = {path for run in self.seen for path in run.layouts}
        kept = {p: max(run.kept_bytes.get(p, 0) for run in self.seen) for p in called}
        self._worth = kept | {p: self._summed(p, kept) for p in paths if p not in called}

    def _summed(self, path: str, kept: dict[str, int]) -> int:
        return sum(kept[p] if p in kept else self._summed(p, kept) for p in self._children(path))

    @property
    def paths(self) -> list[str]:
        """Return the paths of the units in the order of the model; none lies or runs in another."""
        chosen = set(self._inside(""))
        return [p for p in self._modules if p in chosen and chosen.isdisjoint(self._callers(p))]

    @property
    def varying(self) -> list[str]:
        """Return the patterns of repeated layers that are called in several ways, largest first."""
        layers = [p for p in self._modules if p and self._repeated(p)]
        return [pattern for pattern in self.by_pattern(layers) if pattern in self._varying]

    def _callers(self, path: str) -> frozenset[str]:
        nobody: frozenset[str] = frozenset()
        return nobody.union(*(run.within.get(path, nobody) for run in self.seen))

    def share(self, paths: Iterable[str]) -> float:
        """Return what share of all that modules keep for backward some of them keep."""
        return sum(self._worth[path] for path in paths) / max(1, self._worth[""])

    def by_pattern(self, paths: Iterable[str]) -> dict[str, list[str]]:
        """Return paths that differ in numbers alone together, those first that keep the most."""
        return dict(sorted(_by_pattern(paths).items(), key=lambda item: -self.share(item[1])))

    def _inside(self, path: str) -> Iterator[str]:
        for child in self._children(path):
            yield from self._of(child)

    def _of(self, path: str) -> Iterator[str]:
        if path in self.idle or self.share(self._alike[starred(path)]) < _WORTHWHILE:
            return
        if self._may_be(path) and (self._repeated(path) or not self._made_of_layers(path)):
            yield path
        else:
            yield from self._inside(path)

    def _may_be(self, path: str) -> bool:
        called = any(path in run.layouts for run in self.seen)
        return called and path not in self.refused and starred(path) not in self._varying

    def _repeated(self, path: str) -> bool:
        """Tell whether a module stands in a list with others of its class."""
        parent = path.rpartition(".")[0]
        if not isinstance(self._modules[parent], _LISTS):
            return False
        kinds = Counter(type(self._modules[p]) for p in self._children(parent))
        return kinds[type(self._modules[path])] > 1

    def _made_of_layers(self, path: str) -> bool:
        """Tell whether most of what a module keeps is kept by repeated layers in it."""
        return 2 * self._layers_bytes(path) >= self._worth[path]

    def _layers_bytes(self, path: str) -> int:
        return sum(
            self._worth[p] if self._repeated(p) else self._layers_bytes(p)
            for p in self._children(path)
        )

    def _children(self, path: str) -> list[str]:
        names = (name for name, _ in self._modules[path].named_children())
        children = (f"{path}.{name}" if path else name for name in names)
        return [child for child in children if child in self._modules]


def _by_pattern(paths: Iterable[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in paths:
        found.setdefault(starred(path), []).append(path)
    return found


def starred(path: str) -> str:
    """Return the pattern of a path and of those that differ from it in numbers alone."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1*", path)


def patterns_of(model: nn.Module, paths: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns that a person would write to name these submodules and no other."""
    modules = [path for path, _ in model.named_modules()]
    wanted = set(paths)
    found: dict[str, None] = {}
    for path in paths:
        tried = (p for p in _patterns(path) if all(m in wanted for m in modules if matches(p, m)))
        found[next(tried, path)] = None
    return tuple(found)


def _patterns(path: str) -> Iterator[str]:
    """Yield patterns that name a path, from that of all numbers down to one number each."""
    yield starred(path)
    parts = path.split(".")
    for i, part in enumerate(parts):
        if part.isdigit():
            yield ".".join([*parts[:i], "*", *parts[i + 1 :]])
