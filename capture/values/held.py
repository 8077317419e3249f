"""What modules and their files hold beside parameters and buffers: noted, compared, put back.

Containers and plain objects are followed inwards: a cache may be a dict in an object on a module.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from remat_gen.capture.process.libraries import is_of_library
from remat_gen.capture.refuse.library_hooks import INSTALLED

_OF_TORCH = frozenset(vars(nn.Module())) | {INSTALLED}
_OPAQUE = (torch.Tensor, nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType)
_GONE = object()


@dataclass(slots=True)
class Held:
    """What there was, by path: dicts (of attributes, too) and lists, and what they had in them.

    Paths are as in `assumed`: `rope.cos`, `cache[6]`, `:TABLES[6]`.
    """

    contents: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _seen: set[int] = field(default_factory=set)

    @classmethod
    def by(cls, model: nn.Module, file: dict[str, Any]) -> Held:
        """Note all that a model holds, and containers of its file."""
        held = cls()
        for name, module in model.named_modules():
            own = {k: v for k, v in vars(module).items() if k not in _OF_TORCH}
            held.contents[name] = vars(module), own
            for attribute, value in own.items():
                held._note(value, f"{name}.{attribute}".lstrip("."))
        for name, value in list(file.items()):
            if isinstance(value, (dict, list)) and name[:2] != "__":
                held._note(value, f":{name}")
        return held

    def _note(self, value: Any, path: str) -> None:
        if id(value) in self._seen:
            return
        inside: Any = None
        if type(value) in (dict, list):
            inside = value
        elif not isinstance(value, _OPAQUE) and not is_of_library(type(value)):
            inside = getattr(value, "__dict__", None)
        if not isinstance(inside, (dict, list)):
            return
        self._seen.add(id(value))
        place = f"{path}[{{}}]" if inside is value else f"{path}.{{}}"
        self.contents[place] = inside, type(inside)(inside)
        for key, item in _items(inside):
            self._note(item, place.format(key))

    def changed(self) -> dict[str, tuple[Any, Any]]:
        """Return what is another object now, by path: what there was, and what there is."""
        found: dict[str, tuple[Any, Any]] = {}
        for place, (container, before) in self.contents.items():
            old, new = dict(_items(before)), dict(_items(container))
            template = place if "{}" in place else f"{place}.{{}}".lstrip(".")
            for key in old.keys() | new.keys():
                if "{}" not in place and key in _OF_TORCH:
                    continue
                pair = old.get(key, _GONE), new.get(key, _GONE)
                if pair[0] is not pair[1]:
                    found[template.format(key)] = pair
        return found

    def put_back(self) -> None:
        """Let everything hold what it held."""
        for place, (container, before) in self.contents.items():
            if isinstance(container, list):
                container[:] = before
            elif "{}" in place:
                container.clear()
                container.update(before)
            else:
                for key in container.keys() - before.keys() - _OF_TORCH:
                    del container[key]
                container.update(before)


def _items(container: Any) -> Iterator[tuple[Any, Any]]:
    return iter(container.items() if isinstance(container, dict) else enumerate(container))


@contextlib.contextmanager
def kept_as_it_is(model: nn.Module) -> Iterator[None]:
    """Run a forward, and take back what it leaves on the model and in its files."""
    held = Held.by(model, files_of(model))
    try:
        yield
    finally:
        held.put_back()


def files_of(model: nn.Module) -> dict[str, Any]:
    """Return the globals of the users' files that a model's classes stand in."""
    kinds = {kind for module in model.modules() for kind in type(module).__mro__}
    files = {sys.modules[kind.__module__] for kind in kinds if not is_of_library(kind)}
    return {name: value for file in files for name, value in vars(file).items()}
