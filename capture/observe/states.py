"""The state that a value is in: how it is described, and what tells when that is not all."""

from __future__ import annotations

import gc
import hashlib
import io
import itertools
import pickle
import types
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from remat_gen.capture.observe.assumed import describe
from remat_gen.capture.process.libraries import is_of_library

_TELLING = (itertools.count, itertools.repeat)  # their text has where they stand
_LOOKS = itertools.count()  # at iterators that do not tell


@dataclass(frozen=True, slots=True)
class State:
    """How a value is described, what is inside of an object, and the fake tensors that it holds."""

    words: str
    inside: str = ""
    fakes: frozenset[int] = frozenset()

    @classmethod
    def of(cls, value: Any) -> State:
        """Return the state that a value is in now."""
        words = words_of(value)
        inside = _inside(value) if words == f"{type(value).__name__} object" else ""
        return cls(words, inside, frozenset(map(id, _fakes_in(value))))


def _fakes_in(value: Any) -> list[FakeTensor]:
    """Return the fakes that a value holds, but for parameters: nn.RNN lists those of each call."""
    if isinstance(value, nn.Module | type | types.ModuleType):
        return []
    held = {} if isinstance(value, torch.Tensor) else getattr(value, "__dict__", {})
    leaves = pytree.tree_leaves((value, dict(held)))
    return [x for x in leaves if isinstance(x, FakeTensor) and not isinstance(x, nn.Parameter)]


def words_of(value: Any) -> str:
    """Describe a value, whatever it is."""
    try:
        return describe(value)
    except Exception:  # a tensor without values; somebody's own class
        return f"{type(value).__name__} object"


def _inside(value: Any) -> str:
    """Return what an object's state is told by: its attributes, or how it is pickled."""
    if isinstance(value, torch.Tensor | nn.Module | torch.Generator):  # the trace tells of those
        return ""
    if isinstance(value, types.GeneratorType):
        frame = value.gi_frame
        loops = [_inside(one) for one in gc.get_referents(value) if isinstance(one, Iterator)]
        return f"{frame.f_lasti} {_words_in(frame.f_locals)} {loops}" if frame else "done"
    held = _words_in(getattr(value, "__dict__", {}))
    if held != "{}" and not any(map(is_of_library, type(value).__mro__[:-1])):
        return held
    pickled = io.BytesIO()
    try:
        with warnings.catch_warnings(action="ignore"):  # Python's, of iterators
            _Pickler(pickled).dump(value)
        return hashlib.sha256(pickled.getbuffer()).hexdigest()
    except Exception:  # somebody's own class, or an iterator
        return held


class _Pickler(pickle.Pickler):
    """Pickles iterators of itertools, too, which Python from 3.14 on does not.

    Where one stands is in the text of some; the others are taken for advanced each time.
    """

    def reducer_override(self, obj: Any) -> Any:
        """Return how to make such an iterator."""
        kind = type(obj)
        if kind.__module__ != "itertools" or "__reduce__" in vars(kind):
            return NotImplemented
        return str, (repr(obj) if kind in _TELLING else str(next(_LOOKS)),)


def _words_in(held: dict[str, Any]) -> str:
    return str({name: words_of(one) for name, one in held.items()})
