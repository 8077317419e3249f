"""Measure the activation peak of a step: the number that a budget bounds.

The activation peak is the highest number of bytes allocated during a step minus the larger of what
is allocated before and after it. On the CPU it is the running sum of the profiler's allocation
events; on a GPU, the allocator's count of requested bytes.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import nn

from remat_gen.capture.device.kinds import kind_of
from remat_gen.capture.profile.memory_events import MemoryEvent, recorded_memory
from remat_gen.verification.step import clear_gradients, training_step

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class PeakMeasurement:
    """The activation peak, and what it was measured against.

    On the CPU `before_bytes` and `after_bytes` count only what was allocated since the first
    warm-up step. `allocated_peak_bytes` is a GPU's: the same peak in the allocator's blocks;
    `reserved_bytes` is all that it holds then, for parameters and inputs too. `events` are the
    CPU's allocations of the step, their totals above what the peak is above.
    """

    peak_bytes: int
    before_bytes: int
    after_bytes: int
    allocated_peak_bytes: int | None = None
    reserved_bytes: int | None = None
    events: tuple[MemoryEvent, ...] = ()


def activation_peak(
    step: Callable[[], object], device: torch.device, warmups: int = 1
) -> PeakMeasurement:
    """Run a step `warmups` times, then once measured; what it returns is held until it ends.

    The garbage collector rests during the step, so that the peak does not depend on when it runs;
    what it finds afterwards counts as memory of the step.
    """
    if kind_of(device).counts_memory:
        with _collector_at_rest():
            return _activation_peak_of_counts(step, device, warmups)

    def warm_up() -> None:
        for _ in range(warmups):
            step()

    return watched_peak(warm_up, step, lambda _: None)


def watched_peak(
    warm_up: Callable[[], object], step: Callable[[], R], look: Callable[[R], object]
) -> PeakMeasurement:
    """Run a warm-up on the CPU, then a step measured; what `look` keeps of it does not count."""
    with _collector_at_rest(), recorded_memory() as recording:
        warm_up()
        gc.collect(0)
        with recording.mark("step"):
            returned = step()
        look(returned)
        with recording.mark("collect"):
            del returned
            gc.collect(1)  # what the warm-up left is of this generation now
    during, collected = recording.spans
    kept = collected.before_bytes - during.after_bytes
    base = max(during.before_bytes, collected.after_bytes - kept)
    return PeakMeasurement(
        peak_bytes=during.highest_bytes - base,
        before_bytes=during.before_bytes,
        after_bytes=collected.after_bytes - kept,
        events=tuple(replace(e, total_bytes=e.total_bytes - base) for e in during.events),
    )


def model_peak(
    model: nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    device: torch.device,
    *,
    set_to_none: bool = False,
    in_flight: int = 1,
) -> PeakMeasurement:
    """Measure the second training step of a model, while others are `in_flight`: wait for backward.

    `.grad` is allocated before it, which is what a budget means; with `set_to_none` the step
    begins by `zero_grad(set_to_none=True)`, PyTorch's default, and makes its gradients anew.
    """

    def step() -> object:
        if set_to_none:
            clear_gradients(model, args, kwargs)
        return training_step(model, args, kwargs, in_flight=in_flight)

    return activation_peak(step, device)


def _activation_peak_of_counts(
    step: Callable[[], object], device: torch.device, warmups: int
) -> PeakMeasurement:
    kind = kind_of(device)
    for _ in range(warmups):
        step()
    gc.collect(0)
    kind.synchronise(device)
    kind.forget_peaks(device)
    before = kind.bytes_now(device)
    step()
    kind.synchronise(device)
    highest = kind.bytes_at_most(device)
    gc.collect(1)
    after = kind.bytes_now(device)
    return PeakMeasurement(
        peak_bytes=highest.requested - max(before.requested, after.requested),
        before_bytes=before.requested,
        after_bytes=after.requested,
        allocated_peak_bytes=highest.allocated - max(before.allocated, after.allocated),
        reserved_bytes=highest.reserved,
    )


@contextlib.contextmanager
def _collector_at_rest() -> Iterator[None]:
    """Let garbage lie but for what is sought before and behind a step.

    The oldest generation is left alone: libraries, and all that a process keeps. Garbage of
    before lies there as long as the step is watched, and counts neither before nor after it.
    """
    was_enabled = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
