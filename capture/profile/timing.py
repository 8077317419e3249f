"""How long a call takes on a device: the median of repeats, device-synchronised."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_HEAD_START_CYCLES = 200_000  # some 0.1 ms: longer than the host takes for one operation


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure one call: at least `fewest` and at most `most` repeats."""

    fewest: int = 3
    most: int = 25
    enough_us: float = 10_000.0

    def repeats(self, once_us: float) -> int:
        """Return how many repeats fit for a call that takes about `once_us`."""
        wanted = int(self.enough_us / max(once_us, 1e-3))
        return min(max(wanted, self.fewest), self.most)


def median_time_us(
    call: Callable[[], object],
    device: torch.device,
    effort: Effort | None = None,
    prepare: Callable[[], object] = lambda: None,
) -> float:
    """Return the median time of a call in microseconds, after warm-up runs.

    `prepare` is called before each of them, outside of the measured time.
    """
    once_us = min(_prepared_us(call, device, prepare) for _ in range(2))  # the first initialises
    repeats = (effort or Effort()).repeats(once_us)
    if device.type == "cuda":
        return statistics.median(_cuda_times_us(call, device, repeats, prepare))
    return statistics.median([_prepared_us(call, device, prepare) for _ in range(repeats)])


def clock_us(call: Callable[[], object], device: torch.device) -> float:
    """Return the wall time of one call, the device idle before and after, in microseconds.

    What the call returns is freed outside of the measured time.
    """
    synchronise(device)
    start_ns = time.perf_counter_ns()
    result = call()
    synchronise(device)
    elapsed_ns = time.perf_counter_ns() - start_ns
    del result
    return elapsed_ns / 1e3


def round_time_us(time_us: float) -> float:
    """Round to 3 significant digits: what measurement noise leaves, and what a plan commits."""
    return float(f"{time_us:.3g}")


def synchronise(device: torch.device) -> None:
    """Wait until the device has done all its work; the CPU always has."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _prepared_us(
    call: Callable[[], object], device: torch.device, prepare: Callable[[], object]
) -> float:
    prepare()
    return clock_us(call, device)


def _cuda_times_us(
    call: Callable[[], object],
    device: torch.device,
    repeats: int,
    prepare: Callable[[], object],
) -> list[float]:
    """Time by events on the stream, which is kept busy while the host is on its way to the call."""
    pairs = []
    with torch.cuda.device(device):
        for _ in range(repeats):
            prepare()
            torch.cuda._sleep(_HEAD_START_CYCLES)
            start = torch.cuda.Event(enable_timing=True)
            end = torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        torch.cuda.synchronize(device)
    return [start.elapsed_time(end) * 1e3 for start, end in pairs]
