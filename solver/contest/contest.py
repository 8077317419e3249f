"""The contest of one budget: strategies offer programs, the replay judges as they come."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Found, Incumbent, News, Standing

ALL = "all schedules"
_ROUNDING = 1e-9  # of sums of times that were added up in different orders


class SearchFailedWarning(RuntimeWarning):
    """A search raised what it should not have: a defect, which costs no schedule found before."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A judged program and the strategy that offered it."""

    strategy: str
    program: Program
    schedule: Schedule
    replay: Replay


@dataclass(slots=True)
class Contest:
    """What is known about one budget: the best entry, and bounds; `ruled_out` by a full search.

    `news` hears of everything better. `failures` are the searches that raised, and what.
    """

    subject: Subject
    budget_bytes: int
    best: Entry | None = None
    bounds: list[Found] = field(default_factory=list)
    ruled_out: bool = False
    news: News | None = None
    failures: dict[str, Exception] = field(default_factory=dict)

    @property
    def budget_units(self) -> int:
        """Return the budget in the units of the searches, rounded down."""
        return self.budget_bytes // self.subject.unit

    @property
    def lower_bound_us(self) -> float:
        """Return the best bound that holds for all schedules."""
        proved = [found.lower_bound_us for found in self.bounds if found.bound_for == ALL]
        return max([self.subject.least_time_us(), *proved])

    @property
    def optimal(self) -> bool:
        """Tell whether no schedule can be quicker than the best entry."""
        return self.best is not None and reaches(self.best.replay.time_us, self.lower_bound_us)

    @property
    def settled(self) -> bool:
        """Tell whether no strategy that we have can do better: nothing can, or a full search."""
        return self.optimal or self.ruled_out or any(found.complete for found in self.bounds)

    @property
    def own_bound_us(self) -> float:
        """Return the best bound for our strategies' schedules: backward runs block by block."""
        return max([self.lower_bound_us, *(found.lower_bound_us for found in self.bounds)])

    def within(self, share: float) -> bool:
        """Tell whether no strategy of ours can be quicker than the best by more than a share."""
        best = self.best
        return best is not None and best.replay.time_us <= self.own_bound_us * (1 + share)

    def offer(self, strategy: str, program: Program) -> None:
        """Keep a program if it fits and is quicker, or as quick with a lower peak."""
        schedule, judged = self.subject.judge(program)
        if judged.peak_bytes > self.budget_bytes:
            return
        if self.best is None or _rank(judged) < _rank(self.best.replay):
            self.best = Entry(strategy, program, schedule, judged)
            self._tell()

    def give_way(self, kept: Entry) -> float | None:
        """Put an entry in place of the best; return how much slower it is, as a share, or None."""
        best = self.best
        if best is not None and best.schedule == kept.schedule:
            return None
        self.best = kept
        if best is None or not best.replay.time_us:
            return 0.0
        return kept.replay.time_us / best.replay.time_us - 1

    def listen(self, strategy: str) -> Incumbent:
        """Return what hears of a search's better and better runs."""
        return lambda runs, _time_us: self.offer(strategy, self.subject.program(runs))

    @contextmanager
    def tolerating(self, strategy: str) -> Iterator[None]:
        """Go on where a search raises: what was found before stands, and a warning names it."""
        try:
            yield
        except Exception as error:
            warnings.warn(f"{strategy}: {error!r}", SearchFailedWarning, stacklevel=3)
            self.failures[strategy] = error

    def hear_bound(self, bound_us: float) -> None:
        """Keep a bound for all schedules, and tell of it while its search goes on."""
        if math.isfinite(bound_us) and bound_us > self.lower_bound_us:
            self.bounds.append(Found(None, bound_us))
            self._tell()

    def _tell(self) -> None:
        least_us = self.subject.least_time_us()
        if self.news is None or least_us <= 0:
            return
        best = None if self.best is None else self.best.replay.time_us / least_us
        self.news(Standing(best, self.lower_bound_us / least_us))

    def take(self, strategy: str, found: Found) -> None:
        """Keep what a search of the whole graph found and proved."""
        if found.runs is not None:
            self.offer(strategy, self.subject.program(found.runs))
        elif found.complete and found.bound_for == ALL:
            self.ruled_out = True
            return
        self.bounds.append(found)
        self._tell()


def reaches(time_us: float, bound_us: float) -> bool:
    """Tell whether a time is down at a bound, but for rounding."""
    return time_us <= bound_us * (1 + _ROUNDING)


def _rank(judged: Replay) -> tuple[float, int, int]:
    return (judged.time_us, judged.peak_bytes, len(judged.reruns))
