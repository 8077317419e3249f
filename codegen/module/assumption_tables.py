"""The tables of what a plan takes for granted: one row for all layers that are alike."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from remat_gen.capture.observe.assumed import NOT_SET, described, fetch, is_plain, paths_of
from remat_gen.capture.observe.repeats import Reads
from remat_gen.codegen.expressions.expressions import quoted

_LONG = 400  # characters of a row: what is longer is described, by a hash


@dataclass(frozen=True, slots=True)
class Tables:
    """What a plan takes for granted, by path with `*` for each index, as Python source.

    `modules` describes modules, `values` has what is plain, `held` describes the rest; `also` what
    forward itself makes of some.
    """

    modules: list[tuple[str, str]]
    values: list[tuple[str, str]]
    held: list[tuple[str, str]]
    also: list[tuple[str, str]]

    @classmethod
    def of(cls, model: nn.Module, reads: Reads) -> Tables:
        """Describe a model, and what its forward reads, as it is now."""
        words = dict(described(model, reads.paths, reads.file))
        modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
        values, held = {}, {}
        for path in _in_order(words.keys() - modules, modules):
            value = fetch(model, path, reads.file)
            if is_plain(value) and len(repr(value)) <= _LONG:
                values[path] = _literal(value)
            else:
                held[path] = quoted(words[path])
        also = {path: both[both[0] == words[path]] for path, both in reads.changed.items()}
        return cls(
            list(_rows(modules, {p: quoted(words[p]) for p in modules if words[p] != "model"})),
            list(_rows(modules, values)),
            list(_rows(modules, held)),
            [(quoted(path), quoted(other)) for path, other in also.items()],
        )


def _in_order(paths: Iterable[str], modules: list[str]) -> list[str]:
    """Return paths in the order of the modules that have them, those of files last."""
    place = {name: i for i, name in enumerate(modules)}

    def key(path: str) -> tuple[int, str]:
        owner = path
        while owner not in place:
            owner = owner.rpartition(".")[0]
        return len(place) if ":" in path else place[owner], path

    return sorted(paths, key=key)


def _rows(modules: list[str], said: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield rows that say of each path the same, with `*` where that is shorter."""
    left = dict(said)
    for path in said:
        if path in left:
            yield from ((quoted(row), text) for row, text in _shortest(modules, path, left))


def _shortest(modules: list[str], path: str, left: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the row that has a path, and take what it says out of `left`."""
    for pattern in _patterns(path):
        alike = paths_of(pattern, modules)
        if len(alike) > 1 and all(at in left for at in alike):
            (text, count), *_ = Counter(left[at] for at in alike).most_common(1)
            if 2 * count > len(alike):
                yield pattern, text
                for at in [at for at in alike if left[at] == text]:
                    del left[at]
                break
    if path in left:
        yield path, left.pop(path)


def _patterns(path: str) -> Iterator[str]:
    """Yield a path with `*` for all of its indices, then for fewer of them, the last ones."""
    indices = list(re.finditer(r"(?<![^.])\d+(?![^.])", path))
    for first in range(len(indices)):
        pattern = path
        for index in reversed(indices[first:]):
            pattern = f"{pattern[: index.start()]}*{pattern[index.end() :]}"
        yield pattern


def _literal(value: Any) -> str:
    """Write a value as Python; its `repr` is not always that."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, tuple):
        return f"({', '.join(map(_literal, value))}{',' * (len(value) == 1)})"
    if value is NOT_SET:
        return "NOT_SET"
    return f"torch.device({quoted(str(value))})" if isinstance(value, torch.device) else repr(value)
