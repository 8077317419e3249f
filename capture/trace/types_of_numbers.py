"""Lengths that vary have the types of numbers, where a file of the user's asks for them.

Dynamo knows that `x.shape[0]` is an int. Traced without it, it is a `torch.SymInt`, and
`isinstance(n, int)` would go the other way than in a step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from remat_gen.capture.process.libraries import user_files

_NUMBERS = ((torch.SymInt, 0), (torch.SymFloat, 0.0), (torch.SymBool, False))


@contextlib.contextmanager
def types_of_numbers(model: nn.Module) -> Iterator[None]:
    """Let files of the user's find Python's types by `isinstance(n, int)` and `type(n)`."""
    answers = {"isinstance": _isinstance, "type": _type}
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
