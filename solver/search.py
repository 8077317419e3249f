"""What every search of a whole graph shares: its effort, what it hears, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

INTERRUPTED = "interrupted: kept the best schedule found so far"


class Effort(Enum):
    """How much work a search may do: counts of steps and z3's resource units, never seconds."""

    QUICK = "quick"
    NORMAL = "normal"
    THOROUGH = "thorough"


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search of a whole graph within one budget.

    `runs` are the operations in the order they run, re-runs included (`liveness` knows the best
    frees); None where no schedule was found. No schedule of the class `bound_for` takes less than
    `lower_bound_us` within the budget: "all schedules", or the words for the smaller class that
    the search went through. `complete` tells that the class was searched to its end: then `runs`
    are its optimum, and None means that it has no schedule within the budget.
    """

    runs: tuple[int, ...] | None
    lower_bound_us: float = 0.0
    bound_for: str = "all schedules"
    complete: bool = False


Incumbent: TypeAlias = Callable[[tuple[int, ...], float], None]
"""Hears of each better schedule while a search goes on: its runs and their time in microseconds."""
