"""What a generated module compares of what modules hold, and of their classes; see `guards`."""

from __future__ import annotations

import dis
import functools
import hashlib
import inspect
import os
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn


def members_read(model: nn.Module, reads: frozenset[str]) -> Iterator[tuple[str, Any]]:
    """Yield what forward's code may read of the classes of a model's modules.

    The model's own forward is not: in a generated module it is the planned one.
    """
    reads = frozenset(name for name in reads if name[:2] != "__")
    for kind in dict.fromkeys(type(module) for module in model.modules()):
        own = set().union(*(vars(c) for c in kind.__mro__ if c not in nn.Module.__mro__))
        where = "" if kind is type(model) else kind.__name__
        for name in sorted(own & (reads if kind is type(model) else {*reads, "forward"})):
            value: Any = inspect.getattr_static(kind, name)
            if isinstance(value, property):
                value = value.fget
            elif isinstance(value, (staticmethod, classmethod)):
                value = value.__func__
            if is_plain(value) or qualname_of(value):
                yield f"{where}.{name}", value


def sources_of(functions: Iterator[Any], file: object, before: float) -> dict[str, str]:
    """Hash by module the lines, without comments, of functions that stand in others than `file`.

    `file` is the globals of one. PyTorch's own are left out, and modules whose lines are not there
    or have been written after the time `before`: they are not what was imported.
    """
    found: dict[str, dict[str, str]] = {}
    for function in map(inspect.unwrap, functions):
        if not isinstance(function, types.FunctionType) or function.__globals__ is file:
            continue
        if str(function.__module__).partition(".")[0] != "torch":
            lines = lines_of(function.__code__, before)
            found.setdefault(function.__module__, {})[function.__qualname__] = lines
    return {
        module: hashlib.sha256(repr(sorted(lines.items())).encode()).hexdigest()[:12]
        for module, lines in found.items()
        if all(lines.values())
    }


@functools.cache
def lines_of(code: types.CodeType, before: float) -> str:
    """Return the lines of a function, without comments; "" where they are not what is run."""
    try:
        if os.stat(code.co_filename).st_mtime > before:
            return ""
        lines = inspect.getsource(code).splitlines()
    except (OSError, TypeError):
        return ""
    return "\n".join(line.rstrip() for line in lines if line.strip()[:1] not in ("", "#"))


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
    if qualname := qualname_of(value):
        bound = bound_in(value) if depth else []
        return qualname, [describe_held(one, reads, min(depth, 2) - 1) for one in bound]
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
    code, cells = getattr(function, "__code__", None), getattr(function, "__closure__", None)
    for name, cell in zip(getattr(code, "co_freevars", ()), cells or (), strict=False):
        try:
            found += [cell.cell_contents] if name not in written_in(code) else []
        except ValueError:  # it has none yet
            continue
    calls = (functools.partial, types.FunctionType)
    return [one for one in found if is_value(one) or isinstance(one, calls)]


@functools.cache
def written_in(code: Any) -> frozenset[str]:
    """Return the names around a function that it writes itself: it counts its calls, say."""
    steps = dis.get_instructions(code)
    return frozenset(str(step.argval) for step in steps if step.opname == "STORE_DEREF")


def qualname_of(value: Any) -> str:
    """Return the name of a function or class, "" of anything else."""
    try:
        return str(value.__qualname__)
    except (AttributeError, LookupError):  # a dict may give its items as attributes
        return ""


def is_plain(value: object) -> bool:
    """Tell whether a value is a number, a text, or a tuple of them."""
    if isinstance(value, tuple):
        return all(map(is_plain, value))
    return isinstance(value, (bool, int, float, str))  # a union takes longer


def is_value(value: Any) -> bool:
    """Tell whether a value is its text: not so arrays of objects, which have addresses in it."""
    if is_plain(value) or isinstance(value, (complex, bytes, range, slice, torch.dtype)):
        return True
    array = type(value).__module__ == "numpy" and hasattr(type(value), "dtype")
    return array and bool(value.dtype.kind != "O")
