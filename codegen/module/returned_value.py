"""What the planned forward returns: the model's own nesting, written as an expression."""

from __future__ import annotations

import builtins
import dataclasses
import enum
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from remat_gen.capture.load.records import fields_of
from remat_gen.codegen.expressions.expressions import quoted
from remat_gen.ir.errors import TraceError


@dataclass(slots=True)
class ResultWriter:
    """Writes a returned value; `leaf` hands out the expressions of its leaves, in order.

    `imports` collects the classes that the expression needs, by module, besides those that the
    user's file (`namespace`) has already.
    """

    leaves: Iterator[str]
    imports: dict[str, set[str]] = field(default_factory=dict)
    namespace: Mapping[str, object] = field(default_factory=dict)

    def write(self, value: Any) -> str:
        """Write a value whose leaves torch's pytree knows."""
        if pytree.SUPPORTED_NODES.get(type(value)) is None and not _is_namedtuple(value):
            return next(self.leaves)
        for kind, writer in self._writers():
            if isinstance(value, kind):
                return writer(value)
        raise TraceError(f"the model returns a {type(value).__name__}, which cannot be rebuilt")

    def _writers(self) -> tuple[tuple[type, Callable[[Any], str]], ...]:
        return (
            (tuple, self._tuple),
            (list, self._list),
            (Mapping, self._dict),
            (object, self._fields),
        )

    def _tuple(self, value: tuple[Any, ...]) -> str:
        items = [self.write(item) for item in value]
        if _is_namedtuple(value):
            return f"{self._class(type(value))}({', '.join(items)})"
        if type(value).__module__ == torch.return_types.__name__:
            return f"torch.return_types.{type(value).__name__}(({', '.join(items)}))"
        text = f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
        return f"torch.Size({text})" if isinstance(value, torch.Size) else text

    def _list(self, value: list[Any]) -> str:
        return f"[{', '.join(self.write(item) for item in value)}]"

    def _dict(self, value: Mapping[Any, Any]) -> str:
        if dataclasses.is_dataclass(value):
            return self._fields(value)
        items = (f"{self._key(key)}: {self.write(item)}" for key, item in value.items())
        text = f"{{{', '.join(items)}}}"
        if isinstance(value, defaultdict):
            text = f"{_factory(value.default_factory)}, {text}"
        return text if type(value) is dict else f"{self._class(type(value))}({text})"

    def _key(self, key: object) -> str:
        if isinstance(key, enum.Enum) and "." not in type(key).__qualname__:
            return f"{self._class(type(key))}.{key.name}"
        if type(key) is tuple:
            return f"({', '.join(map(self._key, key))}{',' * (len(key) == 1)})"
        if type(key) is str:
            return quoted(key)
        if type(key) in (bool, int):
            return repr(key)
        raise TraceError(f"the model returns a dict with the key {key!r}, which no source can say")

    def _fields(self, value: Any) -> str:
        if isinstance(value, dict):
            pairs = list(value.items())
        elif dataclasses.is_dataclass(value):
            pairs = [(f.name, getattr(value, f.name)) for f in _settable_fields(value)]
        else:
            raise TraceError(f"the model returns a {type(value).__name__}, which cannot be rebuilt")
        items = ", ".join(f"{name}={self._field(item)}" for name, item in pairs)
        return f"{self._class(type(value))}({items})"

    def _field(self, item: Any) -> str:
        return "None" if item is None else self.write(item)  # None is no leaf in a dataclass

    def _class(self, kind: type) -> str:
        if self.namespace.get(kind.__name__) is not kind:
            self.imports.setdefault(kind.__module__, set()).add(kind.__name__)
        return kind.__name__


def _settable_fields(value: Any) -> tuple[dataclasses.Field[Any], ...]:
    fields = dataclasses.fields(value)
    kind = type(value).__name__
    for field_ in fields:
        if not field_.init:
            name = f"{kind}.{field_.name}"
            raise TraceError(f"the model returns {name}, which cannot be set: it has init=False")
    if others := fields_of(value).keys() - {field.name for field in fields}:
        raise TraceError(
            f"the model returns a {kind} with {', '.join(sorted(others))}: declare it as a field"
        )
    return fields


def _is_namedtuple(value: object) -> bool:
    return isinstance(value, tuple) and hasattr(value, "_fields")


def _factory(factory: object) -> str:
    """Write what makes the missing values of a defaultdict: `float`."""
    name = getattr(factory, "__name__", "None")
    if factory is not None and vars(builtins).get(name) is not factory:
        raise TraceError(f"the model returns a defaultdict of {name}: let it return a dict of it")
    return name
