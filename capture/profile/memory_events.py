"""Watch every allocation on the CPU: exact bytes, by the profiler's `[memory]` events.

The CPU has no allocator statistics, but the profiler reports each allocation and each free with
its address and time stamp. Their running sum is exact. A free of memory that was allocated before
the recording began cannot be told from a stale record of an earlier one, so frees of unknown
addresses are left out: everything is relative to the start of the recording.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch.autograd import profiler as autograd_profiler
from torch.profiler import record_function

_MARK = "remat-gen:"


@dataclass(frozen=True, slots=True)
class MemoryEvent:
    """Bytes allocated (positive) or freed (negative) at `time_ns`; `total_bytes` after it."""

    time_ns: int
    nbytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Span:
    """Memory inside a marked part: all relative to the start of the recording."""

    name: str
    before_bytes: int
    highest_bytes: int
    after_bytes: int
    events: tuple[MemoryEvent, ...]
    start_ns: int
    end_ns: int


@dataclass(slots=True)
class Recording:
    """What was seen between the start and the end of `recorded_memory`; filled at the end."""

    events: tuple[MemoryEvent, ...] = ()
    spans: tuple[Span, ...] = ()
    _marks: list[str] = field(default_factory=list)

    @contextlib.contextmanager
    def mark(self, name: str) -> Iterator[None]:
        """Name a part of the recording; parts follow one another and are not nested."""
        self._marks.append(name)
        with record_function(f"{_MARK}{len(self._marks) - 1}"):
            yield


@contextlib.contextmanager
def recorded_memory() -> Iterator[Recording]:
    """Record all CPU allocations made within the `with` block, of this and the autograd threads."""
    recording = Recording()
    # not torch.profiler's, which makes a Python object of every event unless it warns (2.11)
    profiler = autograd_profiler.profile(use_kineto=True, profile_memory=True)
    with _without_profiler_chatter():
        profiler.__enter__()
    try:
        yield recording
    finally:
        with _without_profiler_chatter():
            profiler.__exit__(None, None, None)
    if profiler.kineto_results is not None:
        _fill(recording, profiler.kineto_results.experimental_event_tree())


def _fill(recording: Recording, tree: list[torch._C._profiler._ProfilerEvent]) -> None:
    allocations: list[tuple[int, int, int]] = []
    marks: dict[int, tuple[int, int]] = {}
    for event in _walk(tree):
        extra = event.extra_fields
        if isinstance(extra, torch._C._profiler._ExtraFields_Allocation):
            if extra.device.type == "cpu":
                allocations.append((event.start_time_ns, extra.ptr, extra.alloc_size))
        elif event.name.startswith(_MARK):
            index = int(event.name.removeprefix(_MARK))
            marks[index] = (event.start_time_ns, event.end_time_ns)
    recording.events = running_sum(allocations)
    recording.spans = tuple(
        _span(name, *marks[index], recording.events) for index, name in enumerate(recording._marks)
    )


def _walk(
    tree: list[torch._C._profiler._ProfilerEvent],
) -> Iterator[torch._C._profiler._ProfilerEvent]:
    """Yield all events, parents first; without recursion, as user modules nest deeply."""
    waiting = list(reversed(tree))
    while waiting:
        event = waiting.pop()
        yield event
        waiting.extend(reversed(event.children))


def running_sum(allocations: list[tuple[int, int, int]]) -> tuple[MemoryEvent, ...]:
    """Add up (time, address, bytes) events; frees of unknown addresses count nothing.

    An address that is allocated again was freed where the profiler did not see it.
    """
    live: dict[int, int] = {}
    total = 0
    events = []
    for time_ns, address, nbytes in sorted(allocations, key=lambda a: a[0]):
        change = -live.pop(address, 0)
        if nbytes > 0:
            live[address] = nbytes
            change += nbytes
        total += change
        if change:
            events.append(MemoryEvent(time_ns, change, total))
    return tuple(events)


def _span(name: str, start_ns: int, end_ns: int, events: tuple[MemoryEvent, ...]) -> Span:
    first = bisect_left(events, start_ns, key=_when)
    inside = events[first : bisect_right(events, end_ns, key=_when)]
    start = events[first - 1].total_bytes if first else 0
    after = inside[-1].total_bytes if inside else start
    highest = max([start, *(e.total_bytes for e in inside)])
    return Span(name, start, highest, after, inside, start_ns, end_ns)


def _when(event: MemoryEvent) -> int:
    return event.time_ns


@contextlib.contextmanager
def _without_profiler_chatter() -> Iterator[None]:
    """Keep what the profiler says of itself off stderr; pass on everything else.

    "USDT:" lines are torch 2.13's; a CUDA build says that it counted no GPUs where there are none.
    """
    sys.stderr.flush()
    saved = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved, 2)
            os.close(saved)
            caught.seek(0)
            for line in caught.read().splitlines(keepends=True):
                if not line.startswith(b"USDT:") and b"gpuGetDeviceCount failed" not in line:
                    os.write(2, line)
