"""What modules and their files hold beside parameters and buffers: noted, compared, put back.

Containers and plain objects are followed inwards: a cache may be a dict in an object on a module.
"""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from remat_gen.capture.process.libraries import is_of_library, user_files
from remat_gen.capture.process.state import OF_PARAMETERS
from remat_gen.capture.refuse.library_hooks import INSTALLED
from remat_gen.capture.values.kept_places import is_attribute, is_item, is_small, leaves_in
from remat_gen.capture.values.written import is_literal

_OF_TORCH = (frozenset(vars(nn.Module())) - {"training"}) | {INSTALLED}
_HOOKS = frozenset(name for name in vars(nn.Module()) if name.endswith("_hooks"))
_OPAQUE = (torch.Tensor, nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType)
_ORDERED = (list, deque)
_CONTAINERS = (dict, set, *_ORDERED)
_BY_KEY = (dict, list, OrderedDict, defaultdict)  # whose items' paths are those of code
_LEAVES = frozenset((bool, int, float, str, type(None), torch.Tensor))
GONE = object()  # in place of what is not there


@dataclass(frozen=True, slots=True)
class _Holder:
    """A container (a dict of attributes, too), what was in it, and how its items' paths begin.

    Keys in `left` are no concern of it, nor are values in `known`, by their `id`.
    """

    inside: Any
    before: Any
    start: str
    end: str = ""
    left: frozenset[str] = frozenset()
    known: Container[int] = ()


@dataclass(slots=True)
class Held:
    """What there was in all that holds something.

    Paths are as in `assumed`: `rope.cos`, `cache[6]`, `:TABLES[6]`; `seen{6}` in a set, a deque or
    what the user derived from a list.
    """

    holders: list[_Holder] = field(default_factory=list)
    hooks: list[tuple[dict[int, Any], dict[int, Any]]] = field(default_factory=list)
    flags: list[tuple[torch.Tensor, bool]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def by(cls, model: nn.Module, file: dict[str, Any]) -> Held:
        """Note all that a model holds, and containers of its file."""
        held, modules = cls(), {*map(id, model.modules())}
        for name, module in model.named_modules():
            own = {k: v for k, v in vars(module).items() if k not in _OF_TORCH}
            start = f"{name}." if name else ""
            held.holders.append(_Holder(vars(module), own, start, left=_OF_TORCH))
            children = module._modules
            held.holders.append(_Holder(children, dict(children), start, known=modules))
            state = (*module._parameters.values(), *module._buffers.values())
            held.flags += [(t, t.requires_grad) for t in state if t is not None]
            hooks = (vars(module)[name] for name in _HOOKS & vars(module).keys())
            held.hooks += [(there, dict(there)) for there in hooks]
            for attribute in own.keys() - OF_PARAMETERS:
                held._note(own[attribute], f"{start}{attribute}")
        for name, value in list(file.items()):
            if name[:2] != "__":
                held._note(value, f":{name}")
        return held

    def _note(self, value: Any, path: str) -> None:
        if id(value) in self._seen:
            return
        inside: Any = None
        kind = type(value)
        of_python = kind in (*_CONTAINERS, *_BY_KEY)
        if of_python or (isinstance(value, _CONTAINERS) and not is_of_library(kind)):
            inside = value
        elif not isinstance(value, _OPAQUE) and not is_of_library(kind):
            inside = getattr(value, "__dict__", None)
        if not isinstance(inside, _CONTAINERS):
            return
        self._seen.add(id(value))
        start, end = (f"{path}[", "]") if kind in _BY_KEY else (f"{path}{{", "}")
        start, end = (start, end) if inside is value else (f"{path}.", "")
        self.holders.append(_Holder(inside, _copied(inside), start, end))
        for key, item in _items(inside):
            if type(item) not in _LEAVES:  # of which a table may have a million
                self._note(item, f"{start}{key}{end}")

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Return what is another object now, by path: what there was, and what there is.

        Modules come in the model's order.
        """
        found: dict[str, tuple[Any, Any]] = {}
        for holder in self.holders:
            old, new = dict(_items(holder.before)), dict(_items(holder.inside))
            keys = (old.keys() | new.keys()) - holder.left - OF_PARAMETERS
            for key in sorted(keys, key=repr):
                pair = old.get(key, GONE), new.get(key, GONE)
                if pair[0] is not pair[1] and id(pair[1]) not in holder.known:
                    found[f"{holder.start}{key}{holder.end}"] = pair
        return found

    def kept(self) -> list[str]:
        """Return where on modules, and in their dicts and lists, other small tensors are now."""
        leaves = (leaf for p, (_, now) in self.changed().items() for leaf in leaves_in(now, p))
        return [p for p, now in leaves if is_small(now) and (is_attribute(p) or is_item(p))]

    def literals(self) -> dict[str, Any]:
        """Return the plain values that were put into dicts and lists on modules, by path."""
        changed = self.changed().items()
        return {p: now for p, (_, now) in changed if is_item(p) and is_literal(now)}

    def put_back(self) -> None:
        """Let everything hold what it held, with the flags and hooks that it had."""
        for tensor, required in self.flags:
            if tensor.is_leaf and tensor.requires_grad != required:
                tensor.requires_grad_(required)
        for there, before in self.hooks:
            for key in there.keys() - before.keys():
                if not is_of_library(there[key]):  # transformers' stay, and so does what says so
                    del there[key]
            there.update(before)
        for holder in self.holders:
            inside = holder.inside
            if not isinstance(inside, dict):
                inside.clear()
                (inside.update if isinstance(inside, set) else inside.extend)(holder.before)
                continue
            for key in inside.keys() - holder.left:
                del inside[key]
            inside.update(holder.before)


def _copied(container: Any) -> Any:
    if isinstance(container, dict):
        return dict(container)
    return set(container) if isinstance(container, set) else list(container)


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    if isinstance(container, dict):
        return iter(container.items())
    return enumerate(container) if isinstance(container, _ORDERED) else ((i, i) for i in container)


def shown(path: str) -> str:
    """Return a path as a user writes it."""
    path = path.translate(str.maketrans("{}", "[]"))
    return path.lstrip(":") if path[:1] == ":" else f"self.{path}"


@contextlib.contextmanager
def kept_as_it_is(model: nn.Module) -> Iterator[Held]:
    """Run a forward, and take back what it leaves on the model and in its files."""
    held = Held.by(model, files_of(model))
    try:
        yield held
    finally:
        held.put_back()


def files_of(model: nn.Module) -> dict[str, Any]:
    """Return the globals of the users' files that a model's classes stand in, or are used there."""
    return {name: value for file in user_files(model) for name, value in vars(file).items()}
