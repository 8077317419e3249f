"""Run a forward twice from one state: what it reads, and whether it does the same again.

What Python advances from step to step (a counter, an iterator, a generator of its own, the clock)
is a constant to a plan. No list of such things is whole; that the second run differs from the first
tells of all of them.
"""

from __future__ import annotations

import hashlib
import linecache
import pickle
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from remat_gen.capture.assumed import describe, fetch
from remat_gen.capture.libraries import is_library_file, is_of_library, reads_for_forward
from remat_gen.capture.reads import Recorder
from remat_gen.ir.errors import TraceError

R = TypeVar("R")
_CONSTANT = 4096  # numbers: larger ones are no constants of a trace


@dataclass(frozen=True, slots=True)
class Reads:
    """The paths that a forward read (see `assumed`); `file` are the globals of its file.

    `changed` has how some were described before the first run and behind it: forward itself makes
    another of them, and does the same with both.
    """

    file: dict[str, Any] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    changed: dict[str, tuple[str, str]] = field(default_factory=dict)


def read_twice(model: nn.Module, file: dict[str, Any], run: Callable[[], R]) -> tuple[R, Reads]:
    """Run a step's forward twice; return what the second run did, and what forward reads.

    Raises:
        TraceError: the second run did something else, or left something else behind.
    """
    before: dict[str, _State] = {}

    first = _Operations()

    def note(path: str, value: Any) -> None:
        with _disable_current_modes():
            before.setdefault(path, _State.of(value))
        constants = filter(_is_constant, pytree.tree_leaves(value))
        first.constants |= {id(tensor): (tensor, path) for tensor in constants}

    with Recorder(model, file, note).recording(), first:
        run()
    settled = _now(model, file, before)
    again = _Operations(first.found)
    with again:
        result = run()
    left = _now(model, file, before)
    _refuse_advance(settled, left)
    if again.differs:
        _refuse_advance(before, settled)
        raise TraceError(
            "forward does not repeat itself: run again from the same state on the same inputs, it "
            f"does something else{again.place}. A plan would do what the first run does in each "
            "step: pass in what changes (a time, random numbers of Python or NumPy) as an argument"
        )
    words = {path: (state.words, settled[path].words) for path, state in before.items()}
    changed = {path: both for path, both in words.items() if both[0] != both[1]}
    return result, Reads(file, tuple(before), changed)


def _now(model: nn.Module, file: dict[str, Any], paths: Iterable[str]) -> dict[str, _State]:
    """Return the states of what stands at paths now."""
    return {path: _State.of(fetch(model, path, file)) for path in paths}


def _refuse_advance(before: dict[str, _State], after: dict[str, _State]) -> None:
    changed = [path for path, state in after.items() if state != before[path]]
    if not changed:
        return
    path = max(changed, key=lambda p: (before[p].words != after[p].words, len(p)))
    old, new = before[path].words, after[path].words
    shown = f" (from {old} to {new})" if old != new else ""
    raise TraceError(
        f"forward changes {_name(path)}{shown}, which a planned forward would not do: "
        "make it a buffer, return it, or pass it as an argument"
    )


def _name(path: str) -> str:
    """Return what the user writes for a path."""
    return path.lstrip(":") if ":" in path else f"self.{path}"


@dataclass(frozen=True, slots=True)
class _State:
    """How a value is described, and what is inside of an object."""

    words: str
    inside: str = ""

    @classmethod
    def of(cls, value: Any) -> _State:
        words = _words(value)
        return cls(words, _inside(value) if words == f"{type(value).__name__} object" else "")


def _words(value: Any) -> str:
    try:
        return describe(value)
    except Exception:  # a tensor without values; somebody's own class
        return f"{type(value).__name__} object"


def _inside(value: Any) -> str:
    """Return what an object's state is told by: its attributes, or how it is pickled."""
    if isinstance(value, torch.Tensor | nn.Module | torch.Generator):  # the trace tells of those
        return ""
    held = {name: _words(one) for name, one in getattr(value, "__dict__", {}).items()}
    if held and not is_of_library(type(value)):
        return str(held)
    try:
        return hashlib.sha256(pickle.dumps(value)).hexdigest()
    except Exception:  # somebody's own class, or an iterator
        return str(held)


def _is_constant(leaf: object) -> bool:
    """Tell whether something that was read is a tensor whose numbers a trace has."""
    return isinstance(leaf, torch.Tensor) and not isinstance(leaf, FakeTensor | nn.Parameter)


class _Operations(TorchDispatchMode):
    """Notes the operations of a run with their numbers; finds the first that is not as expected."""

    supports_higher_order_operators = True

    def __init__(self, expected: list[object] | None = None) -> None:
        TorchDispatchMode.__init__(self)
        self.found: list[object] = []
        self.constants: dict[int, tuple[torch.Tensor, str]] = {}  # read, and views of them
        self.place = ""  # of the first other one
        self._expected = expected

    @property
    def differs(self) -> bool:
        """Tell whether the operations are not those expected."""
        return bool(self.place) or len(self.found) != len(self._expected or ())

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Note an operation, and run it."""
        leaves = pytree.tree_leaves((args, kwargs))
        self.found.append((str(func), *(self._said(leaf, func) for leaf in leaves)))
        if self._expected is not None and not self.place:
            at = len(self.found) - 1
            if self._expected[at : at + 1] != self.found[at:]:
                self.place = _users_line() or ", inside of a library"
        constants = [self.constants[id(leaf)] for leaf in leaves if id(leaf) in self.constants]
        if constants:
            self._refuse_write(func, args)
        result = func(*args, **(kwargs or {}))
        if constants and any(returned.alias_info for returned in func._schema.returns):
            views = [t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
            self.constants |= {id(view): (view, constants[0][1]) for view in views}
        return result

    def _said(self, leaf: Any, func: Any) -> object:
        """Return what of an argument must be the same again: numbers, and those of constants."""
        if not isinstance(leaf, torch.Tensor):
            return repr(leaf)
        among_fakes = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None
        known = among_fakes or id(leaf) in self.constants or "lift_fresh" in str(func)
        constant = known and _is_constant(leaf)  # a view of one is fake, among fakes
        if not constant or leaf.is_meta or leaf.numel() > _CONSTANT:
            return tuple(leaf.shape)
        with _disable_current_modes():
            return _words(leaf)

    def _refuse_write(self, func: Any, args: tuple[Any, ...]) -> None:
        for argument, value in zip(func._schema.arguments, args, strict=False):
            if argument.alias_info and argument.alias_info.is_write and id(value) in self.constants:
                raise TraceError(
                    f"forward writes into {_name(self.constants[id(value)][1])}, a tensor that is "
                    "no buffer, which a planned forward would not do: register it as a buffer"
                )


def _users_line() -> str:
    """Return the innermost line of the user's on the stack."""
    frame: Any = sys._getframe(2)
    while frame and not _is_users(frame):
        frame = frame.f_back
    if frame is None:
        return ""
    file, line = frame.f_code.co_filename, frame.f_lineno
    return f", first in {Path(file).name}:{line}: {linecache.getline(file, line).strip()}"


def _is_users(frame: Any) -> bool:
    return reads_for_forward(frame.f_globals) and not is_library_file(frame.f_code.co_filename)
