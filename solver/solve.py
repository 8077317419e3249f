"""Solve a scheduling problem within a budget: the front door. All figures are the replay's."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property

from remat_gen.solver.contest.auto import SHORT_SEARCH, Auto
from remat_gen.solver.contest.contest import ALL, Contest, Entry
from remat_gen.solver.contest.entrants import SearchEntrant
from remat_gen.solver.contest.registry import AUTO, FRONTS, STRATEGIES, entrant_for
from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.bare_graph import BareGraph
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import INTERRUPTED, Effort, News, Progress, silent
from remat_gen.solver.stable.committed_schedule import Committed
from remat_gen.solver.stable.layers_alike import LayersAlike
from remat_gen.solver.stable.warm_start import WarmStart


class Status(Enum):
    """What is known about a schedule: OPTIMAL among all schedules within the budget, or not."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"


@dataclass(frozen=True, slots=True)
class Peak:
    """The highest peak of a schedule, and the operation that sets it.

    `where` is "" at the example's sizes.
    """

    nbytes: int
    operation: int
    where: str = ""


class InfeasibleError(ValueError):
    """No schedule of the strategy fits the budget; `proved` where none of any strategy does.

    `where`, if it is not at the example's sizes, is what sets the smallest budget.
    """

    def __init__(self, smallest: Peak, strategy: str, *, proved: bool = False) -> None:
        found = f"the smallest budget found feasible for {strategy} is {smallest.nbytes} bytes"
        super().__init__(found)
        self.smallest_bytes = smallest.nbytes
        self.operation_index = smallest.operation
        self.where = smallest.where
        self.strategy = strategy
        self.proved = proved


@dataclass(frozen=True, slots=True)
class Solution:
    """A schedule within the budget, and the plain one (`eager`) on the same blocks.

    `strategy` is the one that found the schedule: with auto, the winner. `proved` tells whether
    z3 proved all options it was asked for. No schedule of any kind takes less than
    `lower_bound_us`; bounds of smaller classes are among the `notes`, sentences for the user.
    `blocks` are the ranges of forward operations. An interrupted search kept its best schedule.
    Where a committed schedule was kept, or layers were planned alike, `slower` is by what share of
    the time of the best found; else, or where they are the same, it is None.
    """

    strategy: str
    schedule: Schedule
    replay: Replay
    eager: Replay
    proved: bool
    notes: tuple[str, ...]
    blocks: tuple[tuple[int, int], ...]
    status: Status = Status.FEASIBLE
    lower_bound_us: float = 0.0
    interrupted: bool = False
    slower: float | None = None

    @property
    def gap(self) -> float:
        """Return how far the time may be above the optimum, as a share of the bound."""
        if self.status is Status.OPTIMAL or not self.lower_bound_us:
            return 0.0
        return self.replay.time_us / self.lower_bound_us - 1


class Solver:
    """A strategy's search on one problem, to be asked for any number of budgets.

    What can be searched without knowing the budget is searched once.
    """

    def __init__(
        self,
        problem: Problem | BareGraph,
        strategy: str = "rockmate",
        progress: Progress = silent,
        effort: Effort = Effort.NORMAL,
        news: News | None = None,
        committed: Committed | None = None,
        *,
        alike: bool = False,
    ) -> None:
        """Set up; nothing is searched yet. `news` hears how far each search has come.

        A `committed` schedule is kept where it is about as good (see `warm_start`). With `alike`,
        auto plans layers alike where that is about as good.

        Raises:
            ValueError: the strategy is unknown.
        """
        if strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {strategy}; known are {', '.join(STRATEGIES)}")
        self.subject = subject_of(problem)
        self.problem, self.strategy = self.subject.problem, strategy
        self.plain: Replay = self.subject.eager()
        self._entrant = entrant_for(strategy, self.subject, effort, progress)
        self._news = news
        self._steady: WarmStart | None = None
        if committed is not None:
            searching = strategy == AUTO and len(self.problem.operations) <= SHORT_SEARCH
            self._steady = WarmStart(self.subject, committed, effort, searching)
        self._alike = LayersAlike(self.subject, effort) if alike and strategy == AUTO else None

    def solve(self, budget_bytes: int) -> Solution:
        """Return the quickest schedule found within the budget.

        Raises:
            InfeasibleError: no schedule of the strategy fits.
            Exception: a search failed, and no other one found anything.
            KeyboardInterrupt: the search was interrupted before it had found any schedule.
        """
        contest = Contest(self.subject, budget_bytes, news=self._news)
        kept, interrupted = None, False
        try:
            self._entrant.enter(contest)
            kept = self._kept(contest)
        except KeyboardInterrupt:
            if contest.best is None:
                raise
            interrupted = True
        if kept is None and contest.best is None:  # a search may have found what it now does not
            contest.offer(self.strategy, self._least)
        slower = contest.give_way(kept) if kept else None
        if contest.best is None:
            for error in contest.failures.values():
                raise error  # it may be why nothing was found
            raise InfeasibleError(self.smallest_budget(), self.strategy, proved=contest.ruled_out)
        return self._solution(contest, contest.best, interrupted=interrupted, slower=slower)

    def glance(self, budget_bytes: int) -> Entry | None:
        """Return a schedule that auto finds with little work, if it finds one.

        `solve` finds one that is about as good or better, also for lower budgets.
        """
        contest = Contest(self.subject, budget_bytes)
        enter = self._entrant.glance if isinstance(self._entrant, Auto) else self._entrant.enter
        enter(contest)
        return contest.best

    def smallest_budget(self) -> Peak:
        """Return the least peak of a schedule that the strategy finds: its smallest budget."""
        judged = self.subject.judge(self._least)[1]
        return Peak(judged.peak_bytes, judged.peak_at)

    def _kept(self, contest: Contest) -> Entry | None:
        """Return what is kept instead of the contest's best, if anything is.

        The committed schedule may be that of layers planned alike: then nothing has changed since,
        and it is called what it was called when it was found, so that the file stays the same. It
        may be slower than a committed schedule may be, so nothing else is kept instead.
        """
        alike = steady = None
        with contest.tolerating("layers alike"):
            if self._alike:
                alike = self._alike.kept(contest)
        with contest.tolerating("committed schedule"):
            if self._steady and not (alike and self._steady.unchanged(alike)):
                steady = self._steady.kept(contest)
        if steady is None or (alike is not None and alike.schedule == steady.schedule):
            return alike
        return steady

    @cached_property
    def _least(self) -> Program:
        return self._entrant.smallest()

    def _solution(
        self, contest: Contest, best: Entry, *, interrupted: bool, slower: float | None
    ) -> Solution:
        unproved, asked = 0, 0
        if best.strategy in FRONTS and not isinstance(self._entrant, SearchEntrant):
            unproved, asked = self._entrant.unproved()
        notes = _class_notes(contest)
        notes += [f"{unproved} of {asked} block options were not proved optimal"] * bool(unproved)
        notes += [f"{name} failed: {error!r}" for name, error in contest.failures.items()]
        notes += [INTERRUPTED] * interrupted
        return Solution(
            best.strategy,
            best.schedule,
            best.replay,
            self.plain,
            proved=not unproved,
            notes=tuple(notes),
            blocks=self.subject.block_ranges(),
            status=Status.OPTIMAL if contest.optimal else Status.FEASIBLE,
            lower_bound_us=contest.lower_bound_us,
            interrupted=interrupted,
            slower=slower,
        )


def _class_notes(contest: Contest) -> list[str]:
    """Say what is proved about smaller classes of schedules, where it says more than the bound."""
    assert contest.best is not None
    notes = []
    for found in contest.bounds:
        bound_us, known_us = found.lower_bound_us, contest.lower_bound_us
        if found.bound_for == ALL or bound_us <= known_us or contest.optimal:
            continue
        gap = contest.best.replay.time_us / bound_us - 1
        what = "optimal" if found.complete and gap < 1e-9 else f"at most {100 * gap:.2f}% above it"
        notes.append(f"{what} among {found.bound_for}")
    return notes
