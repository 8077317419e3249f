"""Where something stands, for the user: the own line that led there, then the library's.

What to do about it is said of code that the user can change; a library's can only be gone round.
"""

from __future__ import annotations

import contextlib
import re
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from pathlib import Path

import torch
from torch import nn

from remat_gen.capture.process.libraries import is_library_file, is_of_library, is_pythons_file

UNTRACED = "the model cannot be traced: "
NOBODYS = (str(Path(torch.__file__).parent), str(Path(__file__).parents[1]), "<")
"""How files begin whose lines tell a user nothing: torch's, ours, and what is no file."""
_ADVICE = re.compile(
    r": (?=(?:use|draw|keep|return|register|make|give|call|leave|write|\.bool)\b).*"
)
ROUND_IT = (
    ": that is a library's code: use another of its options, or leave that part out of the model "
    "that is planned"
)


_BUILT: ContextVar[str] = ContextVar("built", default="")


@dataclass(frozen=True, slots=True)
class Place:
    """The innermost line of the user's own, and the innermost of a library inside of it.

    As in `Place("net.py:31", "modeling_sam.py:88")`; either may be "".
    """

    own: str = ""
    inside: str = ""

    def __str__(self) -> str:
        if self.own and self.inside:
            return f"{self.own} (in {self.inside})"
        return self.own or self.inside

    def untraceable(self, reason: str) -> str:
        """Return the message that a model cannot be traced for a reason that lies here."""
        return self.told(f"{UNTRACED}{reason}")

    def told(self, reason: str) -> str:
        """Return a message about what lies here; of a library's code, with what goes round it."""
        if self.inside:
            reason = _ADVICE.sub(ROUND_IT, reason.partition("; else ")[0], count=1)
        return f"{self}: {reason}" if str(self) else reason


def place_of(frames: Iterable[tuple[str, int]], inside: str = "") -> Place:
    """Return the place of a stack of files and lines, the innermost first; or `inside` of it."""
    for file, line in frames:
        if file.startswith(NOBODYS) or is_pythons_file(file):
            continue
        here = f"{Path(file).name}:{line}"
        if not is_library_file(file):
            return Place(here, inside)
        inside = inside or here
    return Place(_BUILT.get() if inside else "", inside)


def present_place() -> Place:
    """Return where forward is: up to the frames of ours that have called it."""
    stack = traceback.walk_stack(sys._getframe(1))
    lines = ((frame.f_code.co_filename, line) for frame, line in stack)
    inside = dropwhile(lambda line: line[0].startswith(NOBODYS), lines)
    return place_of(takewhile(lambda line: not line[0].startswith(NOBODYS[1]), inside))


@contextlib.contextmanager
def built_in(file: Path | None, model: nn.Module) -> Iterator[None]:
    """Let the user's own line be where a library's model is built, if no other one leads there."""
    text = file.read_text(encoding="utf-8") if file and is_of_library(type(model)) else ""
    builders = rf"\b{type(model).__name__}\(", r"\bdef build_model\b"
    built = next(filter(None, (re.search(builder, text) for builder in builders)), None)
    line = text.count("\n", 0, built.start()) + 1 if built else 0
    token = _BUILT.set(f"{file.name}:{line}" if file and built else "")
    try:
        yield
    finally:
        _BUILT.reset(token)
