"""Looks of a forward's at the values of tensors: what was found, and what may be done about it.

A trace has no values. Each look is known by where it stands on the stack, and how many were made
from there before; so one run can answer those of another.
"""

from __future__ import annotations

import linecache
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor

from remat_gen.capture.process.libraries import is_library_file
from remat_gen.capture.refuse.places import NOBODYS, Place, place_of
from remat_gen.ir.graph import Source

Site: TypeAlias = tuple["Kind", tuple[tuple[str, int], ...]]
"""How values are asked for, and the lines on the stack, the innermost first."""
Key: TypeAlias = tuple[Site, int]
"""A site, and how many looks came from there before."""
INPUT = "input "  # before the path of one, where names are those of state, too
UNLIKE = tuple(f"{first}0123456789.e+-inf nan True False tensor([])" for first in "-~")
"""Words that have whatever may be looked for in the text of a number, first or last in order."""


class Kind(Enum):
    """How values are asked for."""

    BOOL = "bool"  # `if t`, or an item that is one
    ITEM = "item"  # `t.item()`: a number, which may be only compared
    NUMBER = "number"  # `int(t)`, `x[t]`, and what C++ does by itself
    WHOLE = "whole"  # `t.tolist()`, `t.numpy()`
    SHAPE = "shape"  # `t.nonzero()`, and `t.unique()`, which has several results
    TEXT = "text"  # f"{t}", for messages
    SELECT = "select"  # `x[mask]`, where it may only be asked how much that is
    PICK = "pick"  # `x[t]`, of one number: stays a tensor


class Answer(Enum):
    """What a trace does about a look."""

    KNOWN = "known"  # it is the same in each step
    CHECKED = "checked"  # goes on as the example does, and each step compares
    COMPARED = "compared"  # a number that may be compared: those results are checked


@dataclass(frozen=True, slots=True)
class Numbers:
    """A tensor that a real run found, by its numbers."""

    numbers: Any
    dtype: torch.dtype
    device: torch.device
    shape: torch.Size

    @classmethod
    def of(cls, tensor: Tensor) -> Numbers:
        """Read a tensor."""
        return cls(tensor.tolist(), tensor.dtype, tensor.device, tensor.shape)

    def again(self) -> Tensor:
        """Return such a tensor."""
        made = torch.tensor(self.numbers, dtype=self.dtype, device=self.device)
        return made.view(self.shape)


@dataclass(frozen=True, slots=True)
class Look:
    """A look; `reads` are the inputs, parameters and buffers that its values follow from.

    A coin is `random`: what is drawn decides, among other things or alone. `words` stand in a
    message for a number that differs from step to step, else where it comes from does.
    """

    kind: Kind
    value: Any
    source: Source
    place: Place
    reads: frozenset[str] = frozenset()
    random: bool = False
    answer: Answer = Answer.KNOWN
    words: str = ""

    @property
    def text(self) -> str:
        """Return what stands in a message for a number that differs from step to step."""
        return self.words or f"(a number of {self.place})"

    @property
    def is_compared(self) -> bool:
        """Tell whether it is a number that may only be compared."""
        return self.answer is Answer.COMPARED


@dataclass(slots=True)
class Places:
    """Numbers the looks of one run."""

    seen: Counter[Site] = field(default_factory=Counter)

    def next(self, kind: Kind) -> tuple[Key, Source, Place]:
        """Return the key of a look that is being made, its line, and the place that is told."""
        frames = _frames(sys._getframe(1))
        site = kind, tuple((f.f_code.co_filename, f.f_lineno) for f in frames)
        key = site, self.seen[site]
        self.seen[site] += 1
        return key, line_of(frames), place_of(site[1])


def answer(question: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call what answers Python; what it asks of lengths is told by this place from operators'."""
    return question(*args, **kwargs)


def run_looking(run: Callable[[], Any]) -> Any:
    """Run a forward; the stack is followed up to here."""
    return run()


def _frames(frame: FrameType | None) -> list[FrameType]:
    """Return the frames of users and libraries, the innermost first."""
    found = []
    while frame is not None and frame.f_code is not run_looking.__code__:
        if not frame.f_code.co_filename.startswith(NOBODYS):
            found.append(frame)
        frame = frame.f_back
    return found


def line_of(frames: list[FrameType]) -> Source:
    """Return the innermost line of the user's own, or else of a library's."""
    users = [frame for frame in frames if not is_library_file(frame.f_code.co_filename)]
    told = next(iter(users or frames), None)
    if told is None:
        return Source("", 0, "")
    file, line = told.f_code.co_filename, told.f_lineno
    return Source(Path(file).name, line, linecache.getline(file, line).strip())
