"""What every search of a whole graph shares: its effort, what it hears, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a search has come, in multiples of the time of running each operation once.

    `best` is the quickest schedule found, None before there is any; none is quicker than `bound`.
    """

    best: float | None
    bound: float

    @property
    def gap(self) -> float | None:
        """Return how far the best may be above the optimum, as a share of the bound."""
        return None if self.best is None else max(self.best / self.bound - 1, 0.0)


Progress: TypeAlias = Callable[[str, int, int], None]
"""Hears what is being done, how much of it is done, and how much there is."""


def silent(_what: str, _done: int, _total: int) -> None:
    """Be the progress of a search that nobody hears of."""


News: TypeAlias = Callable[[Standing], None]
"""Hears how far a search has come, each time that its best schedule or its bound improves."""

Incumbent: TypeAlias = Callable[[tuple[int, ...], float], None]
"""Hears of each better schedule while a search goes on: its runs and their time in microseconds."""


def evenly(numbers: Sequence[int], most: int) -> Sequence[int]:
    """Return at most so many of the numbers, evenly, the first and the last among them."""
    if len(numbers) <= most:
        return numbers
    return [numbers[k * (len(numbers) - 1) // (most - 1)] for k in range(most)]
