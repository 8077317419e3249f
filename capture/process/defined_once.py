"""Operators of a user's file are defined once, however often the file's text is run.

Original and generated module are in one process when they are compared, and both have the text of
`torch.library.custom_op`. torch destroys an operator when one of its name is defined again; whoever
holds the first one then calls into freed memory, which works where the second one happens to lie
there, and ends the process where it does not. So a second definition of the same function is the
first: of the same code, options, and values of what it reads; anything in doubt is another one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import torch

from remat_gen.capture.process.replaced import replaced

_PLAIN = (bool, int, float, str, bytes, type(None))
_defined: dict[str, tuple[FunctionType, dict[str, Any], Any]] = {}  # and the operator, by name


@contextlib.contextmanager
def defined_once() -> Iterator[None]:
    """Let `torch.library.custom_op` return what it has returned for the same code."""
    define = torch.library.custom_op

    def once(name: str, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if fn is None:
            return lambda fn: once(name, fn, **options)
        known = _defined.get(name)
        if known is not None and options == known[1] and _surely_same(known[0], fn):
            return known[2]
        operator = define(name, fn, **options)
        if isinstance(fn, FunctionType):
            _defined[name] = fn, options, operator
        return operator

    with replaced(torch.library, "custom_op", once):
        yield


def _surely_same(one: object, other: object) -> bool:
    try:
        return _same(one, other)
    except RecursionError:  # of functions that call each other
        return False


def _same(one: object, other: object) -> bool:
    """Tell whether two values are surely the same to who reads them."""
    if one is other:
        return True
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        return _same_function(one, other)
    if isinstance(one, CodeType) and isinstance(other, CodeType):
        return _same_code(one, other)
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return type(one) is type(other) and isinstance(one, _PLAIN) and one == other


def _same_function(one: FunctionType, other: FunctionType) -> bool:
    if one.__closure__ or other.__closure__ or one.__kwdefaults__ or other.__kwdefaults__:
        return False
    if not (_same(one.__code__, other.__code__) and _same(one.__defaults__, other.__defaults__)):
        return False
    missing = object(), object()
    reads = _names(one.__code__) & (one.__globals__.keys() | other.__globals__.keys())
    return all(
        _same(one.__globals__.get(name, missing[0]), other.__globals__.get(name, missing[1]))
        for name in reads
    )


def _names(code: CodeType) -> set[str]:
    """Return the names that a function reads, those of functions inside it too."""
    inside = (_names(const) for const in code.co_consts if isinstance(const, CodeType))
    return set(code.co_names).union(*inside)


def _same_code(one: CodeType, other: CodeType) -> bool:
    """Compare what is run, wherever it stands."""
    parts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_flags")
    same = all(getattr(one, part) == getattr(other, part) for part in parts)
    return same and _same(one.co_consts, other.co_consts)
