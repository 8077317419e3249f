"""Strategies as the contest of a budget sees them: all programs first, or a search for each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from remat_gen.solver.blocks.judged_runs import SearchFunction, incumbent_of
from remat_gen.solver.chain.program_front import Front, build_front
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.improve.budget_grid import BudgetGrid, bare_ladder
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Found, Incumbent, Progress
from remat_gen.solver.stages.exact_search import Limits, search

EXACT = "exact"
FINENESS = 1 << 7  # steps of the peak to which a least budget is known where a search takes long
QUICK_OPERATIONS = 150  # up to which a quick search's least budget is known to the byte


def searched(
    search: SearchFunction,
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return what a search finds; `on_better` hears of each better schedule."""
    incumbent = incumbent_of(problem, budget_bytes, on_better)
    incumbent.offer(range(len(problem.operations)))
    if incumbent.best is not None:
        return replace(incumbent.found(), complete=True)
    return search(incumbent, effort)


@dataclass(frozen=True, slots=True)
class SearchEntrant:
    """A search with a name.

    `staged` ones need a forward and a backward half of a bare graph; they are quick.
    """

    subject: Subject
    name: str
    search: SearchFunction
    effort: Effort
    staged: bool

    def enter(self, contest: Contest) -> None:
        """Offer every better schedule as it is found."""
        hear = contest.listen(self.name)
        contest.take(self.name, self._found(contest.budget_units, self.effort, hear))

    def smallest(self) -> Program:
        """Return the program of least peak that bisection finds, from the plain one."""
        exact = self.staged and len(self.subject.problem.operations) <= QUICK_OPERATIONS
        return least_program(self.subject, self._attempt, self.subject.plain(), exact=exact)

    def _attempt(self, budget_units: int) -> Program | None:
        """Return a program within a budget."""
        effort = Effort.QUICK if self.staged else self.effort
        runs = self._found(budget_units, effort).runs
        return None if runs is None else self.subject.program(runs)

    def _found(
        self, budget_units: int, effort: Effort, hear: Incumbent = lambda _runs, _time_us: None
    ) -> Found:
        if not self.staged:
            return searched(self.search, self.subject.whole, budget_units, effort, hear)
        order = self.subject.order

        def hear_unstaged(runs: tuple[int, ...], time_us: float) -> None:
            hear(tuple(order[p] for p in runs), time_us)

        found = searched(self.search, self.subject.staged, budget_units, effort, hear_unstaged)
        return replace(found, runs=found.runs and tuple(order[p] for p in found.runs))


@dataclass(frozen=True, slots=True)
class ExactEntrant:
    """Searches for the optimum, from the best that others found.

    Where that is `near` the bound of our own schedules, only the bound of all others is missing.
    """

    subject: Subject
    limits: Limits
    near: float = 0.0
    name: str = EXACT

    def enter(self, contest: Contest) -> None:
        """Offer every better schedule as it is found."""
        start = None if contest.best is None else tuple(contest.best.program.flat())
        found = search(
            self.subject.whole,
            contest.budget_units,
            incumbent=start,
            on_better=contest.listen(EXACT),
            on_bound=contest.hear_bound,
            limits=self.limits,
            in_blocks=not contest.within(self.near),
        )
        contest.take(EXACT, found)


def least_program(
    subject: Subject,
    attempt: Callable[[int], Program | None],  # within a budget in units
    known: Program,
    *,
    exact: bool,
    close: bool = False,
) -> Program:
    """Return the program of least peak that attempts find, from a known one down.

    What it finds is feasible; a smaller budget between those that were tried may be, too. Where
    what is known is `close` to the least, an attempt far below takes the longest and finds nothing:
    steps down double until one fails. Else, and then, what is left is halved.
    """

    def peak_of(program: Program) -> int:
        return subject.judge(program)[1].peak_bytes // subject.unit

    best, peak = known, peak_of(known)
    least, step = subject.whole.floor_bytes(), 1 if exact else peak // FINENESS + 1
    down = step if close else 0
    while peak - least >= step:
        budget = max(least, peak - down) if down else (least + peak - 1) // 2
        found = attempt(budget)
        if found is None:
            least, down = budget + 1, 0
        else:
            best, peak, down = found, min(peak_of(found), budget), 2 * down
    return best


@dataclass(frozen=True)
class FrontEntrant:
    """A strategy of `program_front.py`; all but per-layer know the given order of bare graphs.

    The front is built when it is first asked for, `rotor`'s before rockmate's.
    """

    subject: Subject
    name: str
    progress: Progress
    effort: Effort
    rotor: FrontEntrant | None = None

    @cached_property
    def front(self) -> Front:
        rotor = self.rotor.front if self.rotor else None
        return build_front(self.subject.staged, self.name, self.progress, self.effort, rotor)

    def enter(self, contest: Contest) -> None:
        """Offer the plain program, then the quickest one that fits: as it was found, improved."""
        if self.name != "per-layer":
            contest.offer(self.name, self.subject.plain())
            if contest.optimal:
                return
        free, units = self._orders_freely(), contest.budget_units
        grid = self.ladder if free else self.front.grid
        for found in (grid.known(units), grid.best(units, self.progress)):
            if found is not None:
                program = found.program if free else self.subject.unstaged(found.program)
                contest.offer(self.name, program)

    @cached_property
    def ladder(self) -> BudgetGrid:
        """Return the front's programs of a bare graph, improved with runs in any order."""
        programs = [self.subject.unstaged(c.program) for c in self.front.grid.candidates]
        programs = [self.subject.plain(), *programs]
        return bare_ladder(self.subject.whole, programs, self.effort)

    def smallest(self) -> Program:
        if self._orders_freely():
            return self.ladder.candidates[0].program
        programs = [self.subject.unstaged(self.front.grid.candidates[0].program)]
        programs += [self.subject.plain()] * (self.name != "per-layer")
        return min(programs, key=lambda program: self.subject.judge(program)[1].peak_bytes)

    def _orders_freely(self) -> bool:
        return self.name == "rockmate" and self.subject.chain is None

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        if "front" not in vars(self):
            return 0, 0
        return self.front.unproved, self.front.asked
