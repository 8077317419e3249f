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

from remat_gen.capture.device.kinds import kind_of


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
    return ratio_of(*interleaved_us((original, planned), device, pairs))


def interleaved_us(
    steps: Sequence[Callable[[], object]], device: torch.device, rounds: int
) -> list[list[float]]:
    """Time several steps in turn, after one warm-up each; return each step's times by round.

    Every step stands at every place, and behind every other one, equally often: what ran before
    leaves its mark on caches and on the allocator.
    """
    for step in steps:
        kind_of(device).clock_us(step, device)
    times: list[list[float]] = [[] for _ in steps]
    for i in range(rounds):
        for k in order_of_round(len(steps), i):
            times[k].append(kind_of(device).clock_us(steps[k], device))
    return times


def order_of_round(count: int, i: int) -> list[int]:
    """Return the order of `count` steps in round `i`: a row of a Latin square.

    Within `count` rounds, or two times as many where it is odd, each step directly follows each
    other one equally often (Williams, "Experimental designs balanced for the estimation of residual
    effects of treatments", 1949): 0, 1, n-1, 2, n-2, … , shifted by the round.
    """
    first = [(k + 1) // 2 if k % 2 else (count - k // 2) % count for k in range(count)]
    row = [(k + i) % count for k in first]
    return row[::-1] if count % 2 and (i // count) % 2 else row


def ratio_of(originals: Sequence[float], planneds: Sequence[float]) -> TimeRatio:
    """Return the ratio of times that were taken round by round, in microseconds."""
    ratios = [p / o for o, p in zip(originals, planneds, strict=True)]
    low, high = median_interval(ratios)
    return TimeRatio(
        median=statistics.median(ratios),
        low=low,
        high=high,
        original_us=statistics.median(originals),
        planned_us=statistics.median(planneds),
        pairs=len(ratios),
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
