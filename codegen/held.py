"""What a generated module compares of what modules hold, and of their classes; see `guards`."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn


def describe_classes(
    model: nn.Module, reads: frozenset[str], names: Mapping[str, object]
) -> Iterator[tuple[object, ...]]:
    """Describe what forward's code may read of classes, and of the file's global `names`.

    The model's own forward is the planned one in a generated module. Of functions of other files,
    which may be edited or another version's, the source counts.
    """
    reads = frozenset(name for name in reads if name[:2] != "__")  # a file's own name, say
    for name in sorted(reads.intersection(names)):
        if is_plain(names[name]) or inspect.isfunction(names[name]):
            yield f".{name}", describe_held(names[name]), source_hash(names[name], names)
    kinds = dict.fromkeys(type(module) for module in model.modules())
    for kind in kinds:
        own = set().union(*(vars(c) for c in kind.__mro__ if c not in nn.Module.__mro__))
        read = own & reads if kind is type(model) else own & {*reads, "forward"}
        for name in sorted(read):
            value: Any = inspect.getattr_static(kind, name)
            value = getattr(value, "__func__", getattr(value, "fget", value))
            if is_plain(value) or hasattr(value, "__qualname__"):
                where = kind.__name__ if kind is not type(model) else ""
                yield f"{where}.{name}", describe_held(value), source_hash(value, names)


def source_hash(function: Any, names: Mapping[str, object]) -> str:
    """Hash a function's lines, without comments; "" where they stand in the file of `names`."""
    found = inspect.unwrap(function)
    if not inspect.isfunction(found) or found.__globals__ is names:
        return ""
    torchs = str(found.__module__).partition(".")[0] == "torch"
    return "" if torchs else hash_of_lines(found.__code__)


@functools.cache
def hash_of_lines(code: types.CodeType) -> str:
    """Hash the source of a function, without comments; "" where there is none."""
    try:
        lines = inspect.getsource(code).splitlines()
    except (OSError, TypeError):
        return ""
    code_alone = (line.rstrip() for line in lines if line.strip()[:1] not in ("", "#"))
    return hashlib.sha256("\n".join(code_alone).encode()).hexdigest()[:12]


def describe_held(value: object, reads: frozenset[str] = frozenset(), depth: int = 6) -> object:
    """Describe what a module holds beside tensors and modules: of an object, what `reads` name.

    Of what is deeper, or longer than 1000, the kind alone: it may hold itself, or be a vocabulary.
    """
    if value is None or is_value(value) or hasattr(type(value), "__members__"):  # an Enum
        return repr(value)
    if isinstance(value, (dict, list, tuple, set, frozenset)):
        listed: Any = value
        if isinstance(value, dict):  # a library's own notes may be in another order each time
            listed = [(k, v) for k, v in value.items() if str(k)[:1] != "_" or k in reads]
        ordered = sorted(listed, key=repr) if isinstance(value, (set, frozenset)) else listed
        few = ordered if depth and len(value) <= 1000 else ()
        inside = [describe_held(item, reads, depth - 1) for item in few]
        return type(value).__name__, len(value), inside
    if isinstance(value, functools.partial):
        parts = value.func, value.args, value.keywords
        return "partial", [describe_held(part, reads, depth - 1) for part in parts if depth]
    if hasattr(value, "__qualname__"):
        return value.__qualname__, [
            describe_held(v, reads, depth - 1) for v in bound_in(value) if depth
        ]
    if not depth or isinstance(value, (Tensor, nn.Module)):
        return type(value).__name__
    slots = getattr(value, "__slots__", None) or ()
    named = getattr(value, "__dict__", {}) or {n: getattr(value, n, None) for n in slots}
    read = sorted(n for n in named if n in reads)
    return type(value).__name__, [(n, describe_held(named[n], reads, depth - 1)) for n in read]


def bound_in(function: Any) -> list[object]:
    """Return the numbers, texts and functions that a function has of where it was made."""
    found = [*(getattr(function, "__defaults__", None) or ())]
    found += (getattr(function, "__kwdefaults__", None) or {}).values()
    for cell in getattr(function, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it has none yet
            continue
    return [
        v for v in found if is_value(v) or isinstance(v, functools.partial) or inspect.isfunction(v)
    ]


def is_plain(value: object) -> bool:
    """Tell whether a value is a number, a text, or a tuple of them."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, (bool, int, float, str))  # a union takes longer


def is_value(value: object) -> bool:
    """Tell whether a value is its text: a plain one, or one of Python's, NumPy's or torch's."""
    others = (complex, bytes, range, slice, torch.dtype)
    return is_plain(value) or isinstance(value, others) or type(value).__module__ == "numpy"
