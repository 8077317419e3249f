"""Give what calls deeply one large piece of memory for its frames.

CPython keeps the frames of Python functions in chunks of 16 KiB. A loop whose calls cross the end
of a chunk maps a new one for each call and gives it back: a million times while a GPT of 48 layers
was traced, a quarter of the time, or never, by the depth at which tracing began
(docs/findings/trace.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
# More than half of a MiB: the chunk is the next power of two, and the rest of it is for callees.
_SLOTS = 66_000


def in_large_chunk(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that has half a MiB for the frames of what it calls."""

    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        return function(*args, **kwargs)

    call.__code__ = call.__code__.replace(co_stacksize=_SLOTS)
    return functools.wraps(function)(call)
