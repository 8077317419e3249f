"""The line on which forward does what a planned one would not: found by one more run of it."""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from torch import nn

from remat_gen.capture.process.quiet import quiet
from remat_gen.capture.refuse.kept_errors import DrawError, KeptError
from remat_gen.capture.refuse.places import Place, place_of
from remat_gen.capture.values.held import Held, files_of, kept_as_it_is
from remat_gen.capture.values.looks import run_looking

_NUMPYS = "numpy.random"


@contextlib.contextmanager
def told_where(model: nn.Module, run: Callable[[], object]) -> Iterator[None]:
    """Let the refusal of what a forward does have the line; `run` runs it."""
    try:
        yield
    except (KeptError, DrawError) as error:
        kept = isinstance(error, KeptError)
        place = _where_kept(model, error.name, run) if kept else _where_drawn(model, run)
        raise type(error)(place.told(str(error)), error.name) from error


def _where_kept(model: nn.Module, path: str, run: Callable[[], object]) -> Place:
    """Return the line behind which there is another object at a path that ends in this name."""
    found = _Lines(model, re.findall(r"[A-Za-z_]\w*", path)[-1:])
    with kept_as_it_is(model), contextlib.suppress(Exception), quiet(), _tracing(found.enter):
        run()
    return found.place


@dataclass(slots=True)
class _Lines:
    """Looks behind each line of the code that has the names."""

    model: nn.Module
    names: list[str]
    place: Place = field(default_factory=Place)
    _held: Held = field(init=False)
    _last: dict[FrameType, int] = field(default_factory=dict)
    _named: dict[CodeType, bool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._held = Held.by(self.model, files_of(self.model))

    def enter(self, frame: FrameType, _event: str, _value: Any) -> Any:
        """Follow a call if its code has the names."""
        code = frame.f_code
        names = {*code.co_names, *code.co_varnames, *map(str, code.co_consts)}
        if self._named.setdefault(code, not names.isdisjoint(self.names)):
            self._last[frame] = frame.f_lineno
            return self._look
        return None

    def _look(self, frame: FrameType, _event: str, _value: Any) -> Any:
        if not str(self.place) and self._is_changed():
            outer = _stack(frame.f_back)
            self.place = place_of([(frame.f_code.co_filename, self._last[frame]), *outer])
        self._last[frame] = frame.f_lineno
        return self._look

    def _is_changed(self) -> bool:
        return any(name in path for path in self._held.changed() for name in self.names)


def _where_drawn(model: nn.Module, run: Callable[[], object]) -> Place:
    """Return the line that draws a random number of Python's or NumPy's."""
    places: list[Place] = []

    def called(frame: FrameType, event: str, function: Any) -> None:
        if event == "c_call" and not places and _draws(function):
            places.append(_place_of_draw(frame))

    before = sys.getprofile()
    with kept_as_it_is(model), contextlib.suppress(Exception), quiet():
        sys.setprofile(called)
        try:
            run()
        finally:
            sys.setprofile(before)
    return places[0] if places else Place()


def _place_of_draw(frame: FrameType) -> Place:
    """Return the place of a draw; of code that a library makes (checks of types), its name."""
    stack = [place for place in _stack(frame) if place[0] != random.__file__]
    made = re.fullmatch(r"<(.+?)( at 0x\w+)?>", stack[0][0]) if stack else None
    return place_of(stack, made[1] if made else "")


def _draws(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return (
        function is os.urandom
        or isinstance(owner, random.Random)
        or type(owner).__module__.startswith(_NUMPYS)
    )


def _stack(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    while frame is not None and frame.f_code is not run_looking.__code__:
        yield frame.f_code.co_filename, frame.f_lineno
        frame = frame.f_back


@contextlib.contextmanager
def _tracing(enter: Callable[..., Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(enter)
    try:
        yield
    finally:
        sys.settrace(before)
