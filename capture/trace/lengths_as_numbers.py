"""Lengths that vary are numbers to Python's own functions, where a file of the user's calls them.

Dynamo knows that `x.shape[0]` is an int. Traced without it, it is a `torch.SymInt`:
`isinstance(n, int)` would go the other way than in a step, and of `len(x)` or `max(n, 4)` Python
would make the example's number.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from remat_gen.capture.process.libraries import user_files

_NUMBERS = ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False))


@contextlib.contextmanager
def lengths_as_numbers(model: nn.Module) -> Iterator[None]:
    """Let files of the user's call functions that know lengths: `isinstance(n, int)`, `len(x)`."""
    answers = {"isinstance": _isinstance, "type": _type, "len": _len}
    answers |= {"min": _choosing(min, torch.sym_min), "max": _choosing(max, torch.sym_max)}
    spaces = [(vars(file), name) for file in user_files(model) for name in answers]
    own = [(space, name) for space, name in spaces if name not in space]
    for space, name in own:
        space[name] = answers[name]
    try:
        yield
    finally:
        for space, name in own:
            space.pop(name, None)


def _number(value: Any) -> Any:
    """Return a number of the type that a length has in a step; anything else as it is."""
    return next((number for kind, number in _NUMBERS if type(value) is kind), value)


def _isinstance(value: Any, kinds: Any) -> bool:
    several = kinds if isinstance(kinds, tuple) else (kinds,)
    return isinstance(_number(value), tuple(type if kind is _type else kind for kind in several))


def _type(*given: Any) -> Any:
    return type(_number(given[0])) if len(given) == 1 else type(*given)


def _len(of: Any) -> Any:
    return of.shape[0] if isinstance(of, torch.Tensor) and of.ndim else len(of)


def _choosing(plain: Callable[..., Any], symbolic: Callable[..., Any]) -> Callable[..., Any]:
    def choose(*values: Any, **options: Any) -> Any:
        numbers = len(values) == 2 and {type(value) for value in values} <= {torch.SymInt, int}
        return symbolic(*values) if numbers and not options else plain(*values, **options)

    return choose
