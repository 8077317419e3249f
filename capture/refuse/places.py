"""Where something stands, for the user: the own line that led there, then the library's.

What to do about it is said of code that the user can change; a library's can only be gone round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from remat_gen.capture.process.libraries import is_library_file

_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parents[1])
_NOBODYS = (_TORCH, _OURS, "<")
_ADVICE = re.compile(r": (?=(?:use|keep|return|register|make|give|call|leave|write|\.bool)\b).*")
ROUND_IT = (
    ": that is a library's code: use another of its options, or leave that part out of the model "
    "that is planned"
)


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
        if self.inside:
            reason = _ADVICE.sub(ROUND_IT, reason, count=1)
        said = f"the model cannot be traced: {reason}"
        return f"{self}: {said}" if str(self) else said


def place_of(frames: Iterable[tuple[str, int]]) -> Place:
    """Return the place of a stack of files and lines, the innermost first."""
    inside = ""
    for file, line in frames:
        if file.startswith(_NOBODYS):
            continue
        here = f"{Path(file).name}:{line}"
        if not is_library_file(file):
            return Place(here, inside)
        inside = inside or here
    return Place("", inside)
