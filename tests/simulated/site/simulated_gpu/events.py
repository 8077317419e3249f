"""What the simulated GPU was asked to do."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from typing import NamedTuple

from simulated_gpu.library import library


class Event(NamedTuple):
    """An event: `kind` is alloc, free, op, read (the host waits for a result), upload or sync.

    `a` and `b` are a block's address and the bytes that were asked for, or a copy's elements.
    """

    kind: str
    what: str
    a: int
    b: int


@contextlib.contextmanager
def logged() -> Iterator[list[Event]]:
    """Log events; the list is filled at the end."""
    found: list[Event] = []
    library().sim_log(1)
    try:
        yield found
    finally:
        library().sim_log(0)
        found += map(_event, _text().splitlines())


def _text() -> str:
    size = 0
    while True:
        buffer = ctypes.create_string_buffer(size)
        needed = library().sim_events(buffer, size)
        if needed <= size:
            return buffer.value.decode()
        size = needed + 1


def _event(line: str) -> Event:
    kind, *what, a, b = line.split(" ")
    return Event(kind, " ".join(what), int(a), int(b))
