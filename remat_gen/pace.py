"""Compare the time of two steps: paired, interleaved, with an interval free of distributions.

The interval for the median ratio is that of the sign test: between two order statistics of the
ratios, chosen so that the median lies outside with probability at most 5 % (Conover, "Practical
Nonparametric Statistics", 3.2). Below 6 pairs no such interval exists; it is then (min, max).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from remat_gen.capture.timing import clock_us


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """Step time of the planned model over the original's: the median and a 95 % interval."""

    median: float
    low: float
    high: float
    original_us: float
    planned_us: float
    pairs: int


def time_ratio(
    original: Callable[[], object],
    planned: Callable[[], object],
    device: torch.device,
    pairs: int,
) -> TimeRatio:
    """Time both steps `pairs` times, each first every other time, after one warm-up each."""
    clock_us(original, device)
    clock_us(planned, device)
    originals, planneds = [], []
    for i in range(pairs):
        if i % 2:
            planneds.append(clock_us(planned, device))
            originals.append(clock_us(original, device))
        else:
            originals.append(clock_us(original, device))
            planneds.append(clock_us(planned, device))
    ratios = [p / o for o, p in zip(originals, planneds, strict=True)]
    low, high = median_interval(ratios)
    return TimeRatio(
        median=statistics.median(ratios),
        low=low,
        high=high,
        original_us=statistics.median(originals),
        planned_us=statistics.median(planneds),
        pairs=pairs,
    )


def median_interval(values: Sequence[float], miss: float = 0.05) -> tuple[float, float]:
    """Return the interval of order statistics that misses the median at most so often."""
    ordered = sorted(values)
    n = len(ordered)
    outside = 0.0
    for rank in range(n // 2):
        outside += 2 * math.comb(n, rank) / 2**n
        if outside > miss:
            return ordered[max(rank - 1, 0)], ordered[n - 1 - max(rank - 1, 0)]
    return ordered[0], ordered[-1]
