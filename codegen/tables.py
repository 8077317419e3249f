"""The tables of what a plan takes for granted: one row for all layers that are alike."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from remat_gen.capture.assumed import NOT_SET, PARTS, described, found_at, found_in, is_plain
from remat_gen.capture.repeats import Reads
from remat_gen.codegen.expressions import quoted

_LONG = 400  # characters of a row: what is longer is described, by a hash


@dataclass(frozen=True, slots=True)
class Tables:
    """What a plan takes for granted, by path with `*` for each index, as Python source.

    `modules` describes modules, `values` has what is plain, `held` describes the rest; `also` what
    forward itself makes of some. In `all_plain` tables no value changes while it stays the same
    object.
    """

    modules: list[tuple[str, str]]
    values: list[tuple[str, str]]
    held: list[tuple[str, str]]
    also: list[tuple[str, str]]
    all_plain: bool

    @classmethod
    def of(cls, model: nn.Module, reads: Reads) -> Tables:
        """Describe a model, and what its forward reads, as it is now."""
        modules = [name for name, _ in model.named_modules(remove_duplicate=False)]
        found = found_in(model, [*modules, *reads.paths], reads.file)
        words = {path: said for path, _, said in described(found)}
        values = {
            p: found[p][1][-1][2] for p in _in_order(set(reads.paths) - set(modules), modules)
        }
        written = {path: _literal(value) for path, value in values.items() if _is_short(value)}
        return cls(
            list(_rows(model, {p: quoted(words[p]) for p in modules if words[p] != "model"})),
            list(_rows(model, written)),
            list(_rows(model, {p: quoted(words[p]) for p in values if p not in written})),
            [(quoted(p), quoted(both[both[0] == words[p]])) for p, both in reads.changed.items()],
            len(written) == len(values) and all(map(is_plain, values.values())),
        )


def _in_order(paths: Iterable[str], modules: list[str]) -> list[str]:
    """Return paths in the order of the modules that have them, those of files last."""
    place = {name: i for i, name in enumerate(modules)}

    def key(path: str) -> tuple[int, str]:
        names = PARTS.findall(path)
        owners = (".".join(names[:i]) for i in range(len(names), -1, -1))
        return next(place[o] for o in owners if o in place) if ":" not in path else len(place), path

    return sorted(paths, key=key)


def _is_short(value: Any) -> bool:
    """Tell whether a value is one that is written as Python writes it."""
    if type(value) in (list, tuple):
        plain = all(map(_is_short, value))
    elif type(value) is dict:
        plain = all(map(_is_short, (*value, *value.values())))
    else:
        plain = is_plain(value)
    return plain and len(repr(value)) <= _LONG


def _rows(model: nn.Module, said: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield rows that say of each path the same, with `*` where that is shorter."""
    left = dict(said)
    for path in said:
        if path in left:
            yield from ((quoted(row), text) for row, text in _shortest(model, path, left))


def _shortest(model: nn.Module, path: str, left: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the row that has a path, and take what it says out of `left`."""
    for pattern in _patterns(path):
        alike = [at for at, _ in found_at(model, PARTS.findall(pattern))]
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
    names = PARTS.findall(path)
    indices = [i for i, name in enumerate(names) if name.isdigit()]
    for first in range(len(indices)):
        stars = indices[first:]
        yield _joined(["*" if i in stars else name for i, name in enumerate(names)])


def _joined(names: list[str]) -> str:
    return "".join(name if name[0] == "[" else f".{name}" for name in names).lstrip(".")


def _literal(value: Any) -> str:
    """Write a value as Python; its `repr` is not always that."""
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    if isinstance(value, dict):
        items = (f"{_literal(key)}: {_literal(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple):
        inside = ", ".join(map(_literal, value)) + "," * (len(value) == 1)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if value is NOT_SET:
        return "NOT_SET"
    return f"torch.device({quoted(str(value))})" if isinstance(value, torch.device) else repr(value)
