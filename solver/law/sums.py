"""Sums of times that are the same bits under every Python."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import add


def added(times: Iterable[float]) -> float:
    """Add numbers in their order, each sum rounded, as the replay and numpy's `cumsum` do.

    From Python 3.12 on `sum` carries the rounding errors along: the same plan would be another
    schedule there, and a schedule's time not that of its replay.
    """
    return reduce(add, times, 0.0)
