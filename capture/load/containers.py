"""The arguments of a call in other containers than the example's: does forward go by them?

A loader makes lists of tuples, and dicts with more in them than forward reads: where forward asks
by key, or takes what is inside one by one, the kind of a container, the order of its keys and what
stands at others are nothing to a plan.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import getattr_static
from typing import Any

from torch.utils import _pytree as pytree

from remat_gen.capture.load.arguments import Call
from remat_gen.capture.load.records import fields_of, is_record, made, register_record

ALL = object()  # in place of a key
_ASKED = "_remat_gen_asked"
_WHOLE = "__eq__ __ne__ __hash__ __repr__ __str__ __iter__ __len__ __contains__".split()


class ByKey(Mapping[Any, Any]):
    """Stands for a dict; it is none, and can be asked for what stands at a key, not for all.

    `asked` are the keys that it was asked for, also those that are not there; `ALL` for all.
    """

    def __init__(self, held: dict[Any, Any], asked: dict[Any, None]) -> None:
        self.held, self.asked = held, asked

    def __getattr__(self, name: str) -> Any:
        if name[:2] != "__":  # a library's dict may have it
            self.asked[ALL] = None
        raise AttributeError(name)

    def __repr__(self) -> str:
        self.asked[ALL] = None
        return repr(self.held)

    def __getitem__(self, key: Any) -> Any:
        self.asked[key] = None
        return self.held[key]

    def __iter__(self) -> Iterator[Any]:
        self.asked[ALL] = None
        return iter(self.held)

    def __len__(self) -> int:
        self.asked[ALL] = None
        return len(self.held)


def _flatten(stands: ByKey) -> tuple[list[Any], tuple[Any, ...]]:
    frame: Any = sys._getframe(1)
    while frame.f_globals.get("__name__") == pytree.__name__:
        frame = frame.f_back
    if str(frame.f_globals.get("__name__")).partition(".")[0] != "remat_gen":
        stands.asked[ALL] = None
    return [*stands.held.values()], (stands.held.keys(), stands.asked)


pytree.register_pytree_node(
    ByKey,
    _flatten,
    lambda values, told: ByKey(dict(zip(told[0], values, strict=True)), told[1]),
)


@dataclass(frozen=True, slots=True)
class Others:
    """A call's arguments with tuples for lists, lists for tuples, `ByKey` for dicts."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def asked_for_all(self) -> bool:
        """Tell whether a dict was asked for its keys, or how many there are, a record for all."""
        return any(ALL in asked for asked in _all_asked((self.args, self.kwargs)))

    @property
    def asked(self) -> tuple[tuple[tuple[Any, ...], ...], dict[str, tuple[Any, ...]]]:
        """Return the keys that each argument was asked for, or fields; none of other ones."""
        return tuple(map(_asked, self.args)), {k: _asked(v) for k, v in self.kwargs.items()}


def in_others(call: Call) -> Others | None:
    """Return a call's arguments in other containers; None where there are no such containers.

    Those that are read by attributes stay: named tuples, a library's outputs, what has such inside.
    """
    args = tuple(map(_other_argument, call.args))
    kwargs = {name: _other_argument(value) for name, value in call.kwargs.items()}
    pairs = zip((*args, *kwargs.values()), (*call.args, *call.kwargs.values()), strict=True)
    return None if all(other is value for other, value in pairs) else Others(args, kwargs)


def _other_argument(value: Any) -> Any:
    if is_record(value):
        return _by_field(value)
    paths = (path for path, _ in pytree.tree_leaves_with_path(value))
    by_attribute = any(isinstance(key, pytree.GetAttrKey) for path in paths for key in path)
    return value if by_attribute else _other(value)


def _by_field(record: Any) -> Any:
    """Return a record that notes which fields it is asked for; `ALL` where all may have been.

    It is of a derived class, which a class that keeps a list of such would hear of.
    """
    bases = type(record).__mro__[:-1]
    if type(bases[0]) is not type or any("__init_subclass__" in vars(base) for base in bases):
        return record
    fields, asked = fields_of(record), dict[Any, None]()
    of_class = {name: getattr_static(type(record), name) for name in dir(type(record))}
    computed = {name for name, value in of_class.items() if hasattr(value, "__get__")}

    def get(self: Any, name: str) -> Any:
        if name == "__class__":  # `__eq__` of dataclasses compares it before it asks for fields
            return type(record)
        if name == "__dict__":
            asked[ALL] = None
        elif name in fields or (name[:2] != "__" and name not in computed):  # or one not there
            asked[name] = None
        return object.__getattribute__(self, name)

    def whole(name: str) -> Any:
        own = getattr(type(record), name)

        def call(self: Any, *args: Any) -> Any:
            asked[ALL] = None  # C's own look past `__getattribute__`
            return own(self, *args)

        return call

    asking = {name: whole(name) for name in _WHOLE if getattr(type(record), name, None)}
    stands = asking | {"__getattribute__": get, _ASKED: asked}
    kind = type(type(record).__name__, (type(record),), stands)
    register_record(kind)
    return made(kind, fields)


def _other(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ByKey({key: _other(item) for key, item in value.items()}, {})
    if isinstance(value, (list, tuple)):
        items = map(_other, value)
        return list(items) if isinstance(value, tuple) else tuple(items)
    return value


def _asked_of(value: Any) -> dict[Any, None] | None:
    """Return what a stand-in was asked for; None for what is none."""
    found = value.asked if isinstance(value, ByKey) else vars(type(value)).get(_ASKED)
    return found


def _all_asked(value: Any) -> Iterator[dict[Any, None]]:
    """Yield what the stand-ins were asked for, at any depth."""
    asked = _asked_of(value)
    if asked is not None:
        yield asked
    if isinstance(value, ByKey):
        value = value.held
    inside = value.values() if isinstance(value, dict) else value
    for item in inside if isinstance(value, (dict, list, tuple)) else ():
        yield from _all_asked(item)


def _asked(value: Any) -> tuple[Any, ...]:
    return tuple(_asked_of(value) or ())
