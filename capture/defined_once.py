"""Operators of a user's file are defined once, however often the file's text is run.

Original and generated module are in one process when they are compared, and both have the text of
`torch.library.custom_op`. torch destroys an operator when one of its name is defined again; whoever
holds the first one then calls into freed memory, which works where the second one happens to lie
there, and ends the process where it does not. So a second definition of the same code is the first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any
from unittest import mock

import torch

_defined: dict[str, tuple[CodeType, Any]] = {}  # code and operator, by name


@contextlib.contextmanager
def defined_once() -> Iterator[None]:
    """Let `torch.library.custom_op` return what it has returned for the same code."""
    define = torch.library.custom_op

    def once(name: str, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        if fn is None:
            return lambda fn: once(name, fn, **options)
        code = getattr(fn, "__code__", None)
        known = _defined.get(name)
        if known is not None and code is not None and _same(known[0], code):
            return known[1]
        operator = define(name, fn, **options)
        if code is not None:
            _defined[name] = code, operator
        return operator

    with mock.patch.object(torch.library, "custom_op", once):
        yield


def _same(one: object, other: object) -> bool:
    """Tell whether two constants of functions are the same, wherever the functions stand."""
    if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
        return type(one) is type(other) and one == other
    parts = ("co_code", "co_names", "co_varnames", "co_freevars", "co_flags")
    same = all(getattr(one, part) == getattr(other, part) for part in parts)
    consts = one.co_consts, other.co_consts
    return same and len(consts[0]) == len(consts[1]) and all(map(_same, *consts))
