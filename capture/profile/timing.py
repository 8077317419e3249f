"""How long a call takes, on a device and on the host: medians of repeats."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

import torch

from remat_gen.capture.device.kind import Time
from remat_gen.capture.device.kinds import kind_of


@dataclass(frozen=True, slots=True)
class Effort:
    """How long to measure one call: at least `fewest` and at most `most` repeats, or a long one.

    What interrupts a call of `long_us` is a small part of it, and repeats of such calls were most
    of what a profile takes.
    """

    fewest: int = 3
    most: int = 25
    enough_us: float = 10_000.0
    long_us: float = 10_000.0

    def repeats(self, once_us: float) -> int:
        """Return how many repeats fit for a call that takes about `once_us`."""
        if once_us >= self.long_us:
            return 1
        wanted = int(self.enough_us / max(once_us, 1e-3))
        return min(max(wanted, self.fewest), self.most)


def median_time_us(
    call: Callable[[], object], device: torch.device, effort: Effort | None = None
) -> float:
    """Return how long a device is busy with a call: the median, in microseconds."""
    return median_time(call, device, effort).device_us


def median_time(
    call: Callable[[], object],
    device: torch.device,
    effort: Effort | None = None,
    prepare: Callable[[], object] = lambda: None,
    about_us: float = 0.0,
) -> Time:
    """Return the median times of a call, after warm-up runs.

    `prepare` is called before each of them, outside of the measured time. `about_us` is what a call
    takes, where that is known roughly: there are no warm-up runs then.
    """
    kind = kind_of(device)  # the first call initialises
    once_us = about_us or min(kind.clock_us(call, device, prepare) for _ in range(2))
    repeats = (effort or Effort()).repeats(once_us)
    times = kind.times(call, device, repeats, prepare, once_us)
    device_us, host_us = ((t.device_us for t in times), (t.host_us for t in times))
    return Time(statistics.median(device_us), statistics.median(host_us))


def round_time_us(time_us: float) -> float:
    """Round to 3 significant digits: what measurement noise leaves, and what a plan commits."""
    return float(f"{time_us:.3g}")
