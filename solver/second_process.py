"""What runs in a second process: one search, that comes in and whose findings go out.

Both are pickled, on the standard input and output. The input stays open as long as the first
process wants anything; when it ends, however that came about, so does this one.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
from dataclasses import dataclass
from typing import IO, Any

READY = b"remat-gen is ready\n"  # a line of its own, behind whatever was printed before

# `sys.path` comes first: this file may lie where only the first process knows to look.
_START = (
    "import pickle, sys; sys.path[:] = pickle.load(sys.stdin.buffer); "
    f"from {__name__} import main; main()"
)


@dataclass(frozen=True, slots=True)
class Reported:
    """A report of the search's progress."""

    what: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Ended:
    """What the search has returned."""

    found: Any


def started_by(python: str) -> list[str]:
    """Return the command that starts the process; it finds no modules in the current folder."""
    return [python, "-P", "-c", _START]


def main() -> None:
    """Run the search that is handed in."""
    told = _taken_output()
    told.write(b"\n" + READY)
    told.flush()
    search = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_the_input, daemon=True).start()

    def tell(message: Reported | Ended) -> None:
        pickle.dump(message, told, pickle.HIGHEST_PROTOCOL)
        told.flush()

    found = search(lambda what, done, total: tell(Reported(what, done, total)))
    tell(Ended(found))


def _taken_output() -> IO[bytes]:
    """Return the standard output, which nobody else can write to any more."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own


def _end_with_the_input() -> None:
    while os.read(0, 1):
        pass
    os._exit(1)
