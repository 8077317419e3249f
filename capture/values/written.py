"""Plain values that forward puts on modules for others to read: how many rows a step had."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any, cast

import torch
from torch import nn

from remat_gen.capture.process.libraries import acts_for_user
from remat_gen.ir.size import Shape, Size

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
    nn.Module.__setattr__ = put  # type: ignore[method-assign, assignment]
    nn.Module.__delattr__ = take  # type: ignore[method-assign]
    try:
        yield found
    finally:
        nn.Module.__setattr__ = plain  # type: ignore[method-assign]
        nn.Module.__delattr__ = plain_take  # type: ignore[method-assign]


@contextlib.contextmanager
def first_reads(model: nn.Module, paths: Iterable[str]) -> Iterator[set[str]]:
    """Note which attributes of modules a forward reads before it puts others in their place."""
    owners = dict(model.named_modules())
    parts = {path: path.rpartition(".") for path in paths}
    known = {path: part for path, part in parts.items() if part[0] in owners}
    waiting = {(id(owners[owner]), name): path for path, (owner, _, name) in known.items()}
    found: set[str] = set()
    get, plain = nn.Module.__getattribute__, nn.Module.__setattr__
    own = "__getattribute__" in vars(nn.Module)

    def ask_and_tell(owner: nn.Module, name: str) -> Any:
        if path := waiting.pop((id(owner), name), ""):
            found.add(path)
        if name == "__dict__" and acts_for_user(sys._getframe(1)):  # whatever it looks up there
            found.update(path for (of, _), path in waiting.items() if of == id(owner))
        return get(owner, name)

    def put(owner: nn.Module, name: str, value: Any) -> None:
        waiting.pop((id(owner), name), "")
        plain(owner, name, value)

    nn.Module.__getattribute__ = ask_and_tell  # type: ignore[method-assign, assignment]
    nn.Module.__setattr__ = put  # type: ignore[method-assign, assignment]
    try:
        yield found
    finally:
        nn.Module.__getattribute__ = get  # type: ignore[method-assign]
        if not own:  # what all objects have
            del nn.Module.__getattribute__
        nn.Module.__setattr__ = plain  # type: ignore[method-assign]


def is_literal(value: object) -> bool:
    """Tell whether code can say a value: a plain one, a shape, a dtype, a device without number.

    A plain one may follow from lengths.
    """
    if type(value) in (tuple, torch.Size, Shape):
        return all(map(is_literal, cast(tuple[object, ...], value)))
    if type(value) is torch.device:
        return value.index is None
    return value is None or type(value) in _PLAIN
