"""Objects that hold tensors in fields: dataclasses, namespaces, a `Batch` of the user's.

torch's pytree learns their classes, so that they are containers wherever a call's arguments, or
what forward returns, are taken apart and put together again.
"""

from __future__ import annotations

import dataclasses
import enum
import types
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

_PLAIN = bool, int, float, complex, str, type(None), torch.dtype, torch.device, enum.Enum
LEAVES = Tensor, *_PLAIN
_PYTHONS = 1 << 9  # Py_TPFLAGS_HEAPTYPE, of classes that Python code makes


def register_containers(value: object, *, objects: bool = False) -> None:
    """Teach torch's pytree a user's dataclasses and mappings, at any depth; or all `objects`."""
    for leaf in pytree.tree_leaves(value):
        kind: Any = type(leaf)
        if isinstance(leaf, Mapping):
            if not _is_made_of_items(leaf):
                continue
            pytree.register_pytree_node(
                kind,
                _items,
                lambda values, context: context[0](dict(zip(context[1], values, strict=True))),
                flatten_with_keys_fn=lambda own: _with_keys(pytree.MappingKey, _items(own)),
            )
            register_containers([*leaf.values()], objects=objects)
        elif (objects or dataclasses.is_dataclass(leaf)) and is_record(leaf) and ends(leaf):
            if kind not in pytree.SUPPORTED_NODES:  # it has been seen inside of itself
                register_record(kind)
            register_containers([*fields_of(leaf).values()], objects=objects)


def register_record(kind: type) -> None:
    """Teach torch's pytree a class of records; what is None there is no leaf."""
    pytree.register_pytree_node(
        kind,
        _flatten,
        _unflatten,
        flatten_with_keys_fn=lambda own: _with_keys(pytree.GetAttrKey, _flatten(own)),
    )


def is_record(value: object) -> bool:
    """Tell whether an object is no more than its fields, of whatever class."""
    others = type, types.ModuleType, Mapping, list, tuple, *LEAVES
    if isinstance(value, others) or callable(value):
        return False
    return dataclasses.is_dataclass(value) or hasattr(value, "__dict__")


def fields_of(record: Any) -> dict[str, Any]:
    """Return a record's fields: those declared, in order, and others that it has."""
    declared = dataclasses.fields(record) if dataclasses.is_dataclass(record) else ()
    of = object.__getattribute__  # a stand-in would note it
    others = of(record, "__dict__") if type(record).__dictoffset__ else {}
    return {field.name: of(record, field.name) for field in declared} | others


def made(kind: type, fields: Mapping[str, Any]) -> Any:
    """Make a record of these fields, past what its class does when one is made."""
    base: Any = next(base for base in kind.__mro__ if not base.__flags__ & _PYTHONS)
    record = base.__new__(kind)
    for name, value in fields.items():
        object.__setattr__(record, name, value)  # it may be frozen
    return record


def ends(value: Any, above: tuple[int, ...] = ()) -> bool:
    """Tell whether what a value holds, at any depth, does not lead back to it."""
    if id(value) in above:
        return False
    inside: Iterable[Any] = value if isinstance(value, (list, tuple)) else ()
    if isinstance(value, Mapping) or is_record(value):
        inside = (value if isinstance(value, Mapping) else fields_of(value)).values()
    return all(ends(item, (*above, id(value))) for item in inside)


def in_classes_of(file: Mapping[str, Any], arguments: Any) -> Any:
    """Return arguments whose records are of a file's own classes, where it has such of their name.

    A generated file has a copy of each class that the original's defines.
    """

    def own(value: Any) -> Any:
        kind = file.get(type(value).__name__, type(value))
        if not is_record(value) or not isinstance(kind, type) or kind is type(value):
            return value
        if kind not in pytree.SUPPORTED_NODES:
            register_record(kind)
        return made(kind, {name: in_classes_of(file, at) for name, at in fields_of(value).items()})

    return pytree.tree_map(own, arguments, is_leaf=is_record)


def _flatten(record: Any) -> tuple[list[Any], tuple[Any, ...]]:
    fields = fields_of(record)
    there = tuple(name for name in fields if fields[name] is not None)
    return [fields[name] for name in there], (type(record), there, tuple(fields))


def _unflatten(values: Any, context: tuple[Any, ...]) -> Any:
    kind, there, names = context
    return made(kind, dict.fromkeys(names) | dict(zip(there, values, strict=True)))


def _items(own: Any) -> tuple[list[Any], tuple[Any, ...]]:
    return [*own.values()], (type(own), tuple(own))


def _with_keys(key: Any, flat: tuple[list[Any], tuple[Any, ...]]) -> Any:
    values, context = flat
    return [*zip(map(key, context[1]), values, strict=True)], context


def _is_made_of_items(value: Mapping[Any, Any]) -> bool:
    """Tell whether a mapping of a class of the user's is its items, and what that makes of them."""
    kind: Any = type(value)
    try:
        again = kind(dict(value))
        own, others = vars(value), vars(again)
    except Exception:  # the user's own
        return False
    same = type(again) is kind and [*again] == [*value] and own.keys() == others.keys()
    return same and all(again[key] is item for key, item in value.items())
