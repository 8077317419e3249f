"""What is allocated between the units of a step: where each begins, and at most until the next.

By the allocator's counts of requested bytes where it has some, on the CPU by the profiler's events.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Protocol

import torch

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.memory_events import Recording, Span, recorded_memory


@dataclass(frozen=True, slots=True)
class Between:
    """Bytes before a unit's phase begins, and at most since the one before it has ended.

    The first is counted from the step's begin; of the last, `before_bytes` is at the step's end.
    All is above what is allocated before or after the step, whichever is more.
    """

    before_bytes: int
    highest_bytes: int


class Inside(Protocol):
    """Marks a part of a step."""

    def __call__(self, phase: object, /) -> AbstractContextManager[object]: ...


def between_units(step: Callable[[Inside], object], device: torch.device) -> tuple[Between, ...]:
    """Return what is allocated between the parts of a step that it marks, in order."""
    return _counted(step, device) if kind_of(device).counts_memory else _on_cpu(step)


def times_between(step: Callable[[Inside], object], device: torch.device) -> tuple[float, ...]:
    """Return the microseconds that pass outside of the parts that a step marks, in order."""
    marks = [_now_ns(device)]

    @contextlib.contextmanager
    def inside(_: object) -> Iterator[None]:
        marks.append(_now_ns(device))
        yield
        marks.append(_now_ns(device))

    step(inside)
    marks.append(_now_ns(device))
    return tuple((b - a) / 1e3 for a, b in zip(marks[::2], marks[1::2], strict=True))


def _now_ns(device: torch.device) -> int:
    kind_of(device).synchronise(device)
    return perf_counter_ns()


def _on_cpu(step: Callable[[Inside], object]) -> tuple[Between, ...]:
    with recorded_memory() as recording:
        gc.collect()
        with recording.mark("before"):
            pass
        step(lambda phase: recording.mark(str(phase)))
        with recording.mark("after"):
            gc.collect()
    base = max(recording.spans[0].after_bytes, recording.spans[-1].after_bytes)
    spans = zip(recording.spans, recording.spans[1:], strict=False)
    return tuple(
        Between(after.before_bytes - base, _highest(recording, before, after) - base)
        for before, after in spans
    )


def _highest(recording: Recording, before: Span, after: Span) -> int:
    inside = (e for e in recording.events if before.end_ns <= e.time_ns <= after.start_ns)
    return max([before.after_bytes, *(event.total_bytes for event in inside)])


@dataclass(slots=True)
class _Counts:
    """What an allocator that counts says of the parts of a step, in order."""

    device: torch.device
    found: list[tuple[int, int]] = field(default_factory=list)

    def note(self) -> None:
        """Note what is allocated now, and what was at most since the count began."""
        kind = kind_of(self.device)
        kind.synchronise(self.device)
        now, most = kind.bytes_now(self.device), kind.bytes_at_most(self.device)
        self.found.append((now.requested, most.requested))

    @contextlib.contextmanager
    def inside(self, _: object) -> Iterator[None]:
        """Leave a part out."""
        self.note()
        yield
        kind_of(self.device).forget_peaks(self.device)


def _counted(step: Callable[[Inside], object], device: torch.device) -> tuple[Between, ...]:
    counts = _Counts(device)
    gc.collect()
    counts.note()
    kind_of(device).forget_peaks(device)
    step(counts.inside)
    counts.note()
    gc.collect()
    counts.note()
    base = max(counts.found[0][0], counts.found[-1][0])
    return tuple(Between(now - base, peak - base) for now, peak in counts.found[1:-1])
