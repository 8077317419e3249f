"""Plain values that forward puts on modules for others to read: how many rows a step had."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import nn

from remat_gen.capture.process.libraries import acts_for_user
from remat_gen.capture.process.replaced import replaced
from remat_gen.ir.size import Shape, Size

_NONE = object()
_PLAIN = (bool, int, float, str, torch.dtype, Size, torch.SymInt, torch.SymFloat)


@contextlib.contextmanager
def watched_values(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Note by path what a forward puts on modules of a model that is no tensor: what comes last."""
    names = {id(module): name for name, module in model.named_modules()}
    found: dict[str, Any] = {}
    plain = nn.Module.__setattr__

    def put(owner: nn.Module, name: str, value: Any) -> None:
        plain(owner, name, value)
        if id(owner) in names and name != "training" and name in vars(owner):
            path = f"{names[id(owner)]}.{name}".lstrip(".")
            found.pop(path, None)
            if is_literal(value):
                found[path] = value

    def take(owner: nn.Module, name: str) -> None:
        plain_take(owner, name)
        found.pop(f"{names.get(id(owner), '')}.{name}".lstrip("."), None)

    plain_take = nn.Module.__delattr__
    with replaced(nn.Module, "__setattr__", put), replaced(nn.Module, "__delattr__", take):
        yield found


class FirstReads(set[str]):
    """The attributes of modules that a run reads as they were before it.

    Those are `watched`; which were `there`.
    """

    watched: frozenset[str] = frozenset()
    there: frozenset[str] = frozenset()


@contextlib.contextmanager
def first_reads(model: nn.Module, paths: Iterable[str]) -> Iterator[FirstReads]:
    """Note which attributes of modules a forward reads before it puts others in their place."""
    owners = dict(model.named_modules())
    parts = {path: path.rpartition(".") for path in paths}
    waiting = {
        (id(owners[owner]), name): (path, vars(owners[owner]).get(name, _NONE))
        for path, (owner, _, name) in parts.items()
        if owner in owners and set("[{").isdisjoint(name)  # an item has no such watch
    }
    found = FirstReads()
    found.watched = frozenset(path for path, _ in waiting.values())
    found.there = frozenset(path for path, before in waiting.values() if before is not _NONE)
    get, plain = nn.Module.__getattribute__, nn.Module.__setattr__

    def ask_and_tell(owner: nn.Module, name: str) -> Any:
        path, before = waiting.get((id(owner), name), ("", None))
        if path and (before is _NONE or get(owner, name) is before):  # else put past `setattr`
            found.add(path)
        if name == "__dict__" and acts_for_user(sys._getframe(1)):  # whatever it looks up there
            found.update(path for (of, _), (path, _) in waiting.items() if of == id(owner))
        return get(owner, name)

    def put(owner: nn.Module, name: str, value: Any) -> None:
        waiting.pop((id(owner), name), None)
        plain(owner, name, value)

    asked = replaced(nn.Module, "__getattribute__", ask_and_tell)
    with asked, replaced(nn.Module, "__setattr__", put):
        yield found


def is_literal(value: object) -> bool:
    """Tell whether code can say a value: a plain one, a shape, a dtype, a device without number.

    A plain one may follow from lengths.
    """
    if type(value) in (tuple, torch.Size, Shape):
        return all(map(is_literal, cast(tuple[object, ...], value)))
    if type(value) is torch.device:
        return value.index is None
    return value is None or type(value) in _PLAIN
