"""Strategy auto: the best of what suits the size of the problem.

In this order, until something is known to be the best:
1. the plain program, where it fits;
2. the exact search by the stage program: it ends on most models, however large, since a few tight
   places decide;
3. plans of a few stages, repaired, up to some thousand operations: of a thousand on they come
   first, and where they are near the bound the search that follows only bounds all other schedules;
4. where a gap is left that is worth it, the chain programs: rotor's, which take next to no time,
   then rockmate's, with options of blocks from z3. On small graphs without a chain the exact search
   goes on for longer between the two, since what it proves spares all of z3's time.

What stages or chain programs found is improved, while there is a gap. Where one is left still, what
is found within smaller budgets is taken as well, so that more memory costs no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TypeAlias

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.front_entrant import FrontEntrant
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.search_entrant import ExactEntrant, least_program
from remat_gen.solver.contest.stages_entrant import StagesEntrant
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Progress
from remat_gen.solver.stages.exact_search import GLANCE, LIMITS, Limits
from remat_gen.solver.stages.stage_program import Answers

SHORT_SEARCH = 10_000  # operations up to which auto searches exactly
LONG_SEARCH = {Effort.QUICK: 0, Effort.NORMAL: 120, Effort.THOROUGH: 400}
"""Operations up to which auto searches a bare graph for the optimum again, for longer.

Steps in training, where chain programs and their improvement find as much in less time, only where
they are `FINE`, or at `THOROUGH`.
"""
NEAR = {Effort.QUICK: 5e-3, Effort.NORMAL: 2e-3, Effort.THOROUGH: 0.0}
"""What part of a step's time is not worth rockmate's: measured costs are not as exact."""
CLOSE = {Effort.QUICK: 5e-2, Effort.NORMAL: 2e-2, Effort.THOROUGH: 0.0}
"""What part of a step's time no chain program has won back, beside plans of stages, improved."""
SKETCHED = range(100, 6001)  # operations for which auto plans by a few stages
LARGE = 500  # operations of a bare graph: rockmate takes minutes there
FINE = 32  # operations of a graph that is searched in seconds, within many smaller budgets
DEEP = 1000  # operations of a training step: plans of stages are near the bound in a second there
WIDE = 250  # operations of a bare graph: repairs at each attempt would take longer than rockmate
ATTEMPTS = 9  # at a smallest budget, about: what is heard of
GRID, COARSE_GRID = 64, 8  # smaller budgets, as shares of the plain peak
Searching: TypeAlias = ExactEntrant | StagesEntrant | Repairs | FrontEntrant


class Auto:
    """See the module's text. Bare graphs' programs are improved by rockmate alone."""

    name = "auto"

    def __init__(self, subject: Subject, effort: Effort, progress: Progress) -> None:
        """Set up: `short`, `long` and `below`, for smaller budgets, search exactly."""
        self.subject, self.progress = subject, progress
        self.near, self.close = NEAR[effort], CLOSE[effort]
        size, bare = self._size(), subject.chain is None
        answers: Answers = {}

        def exact(limits: Limits, most: int, near: float = 0.0) -> ExactEntrant | None:
            return ExactEntrant(subject, limits, answers, near) if size <= most else None

        repairs, sketched = Repairs(subject, self.near), size in SKETCHED
        self.stages = StagesEntrant(subject, repairs, effort, self.near) if sketched else None
        self.improve = None if bare else repairs
        self.rotor = FrontEntrant(subject, "rotor", progress, effort)
        self.rockmate = FrontEntrant(subject, "rockmate", progress, effort, self.rotor)
        self.short = exact(LIMITS[Effort.QUICK], SHORT_SEARCH, self.near)
        shortly = not bare and effort is not Effort.THOROUGH
        self.long = exact(LIMITS[effort], min(LONG_SEARCH[effort], FINE if shortly else size))
        self.below = exact(LIMITS[Effort.QUICK] if size <= FINE else GLANCE, SHORT_SEARCH)
        self.smaller: dict[int, tuple[Contest, list[Searching | None]]] = {}

    def enter(self, contest: Contest) -> None:
        contest.offer("none", self.subject.plain())
        deep = self._size() >= DEEP and self.subject.chain is not None and self.near > 0
        first = (self.stages, self.short) if deep else (self.short, self.stages)
        self._search(contest, (*first, self.improve))
        improved = contest.best
        self._search(contest, (self.rotor, self.long, self.rockmate))
        if contest.best is not improved:
            self._search(contest, (self.improve,))
        if contest.best is not None and self._has_gap(contest):
            self._take_smaller(contest)

    def glance(self, contest: Contest) -> None:
        """Offer what little work finds: no proof, and not the quickest at low budgets."""
        contest.offer("none", self.subject.plain())
        self._search(contest, (self.stages or self.short, self.rotor))

    def _search(self, contest: Contest, entrants: Iterable[Searching | None]) -> None:
        """Let entrants offer what they find, in order, as far as they are wanted."""
        known = [entrant for entrant in entrants if entrant is not None]
        for number, entrant in enumerate(known, 1):
            if not contest.settled and self._wants(entrant, contest):
                self.progress(entrant.name, number, len(known))
                with contest.tolerating(entrant.name):
                    entrant.enter(contest)

    def _wants(self, entrant: Searching, contest: Contest) -> bool:
        """Tell whether an entrant's time is worth what it may gain."""
        if isinstance(entrant, FrontEntrant) and contest.within(max(self.near, self.close)):
            return False
        return entrant is not self.rockmate or contest.best is None or not self._too_large()

    def _has_gap(self, contest: Contest) -> bool:
        return not contest.settled and not contest.within(self.near)

    def _too_large(self) -> bool:
        bare = self.subject.chain is None
        return bare and self._size() > LARGE and self.near > 0

    def _size(self) -> int:
        return len(self.subject.whole.operations)

    def _take_smaller(self, contest: Contest) -> None:
        """Offer what is found within smaller budgets, which fits as well, the largest first.

        They are fixed shares of the plain peak: what is found within one does not depend on the
        budget asked for. So more memory costs no time, between these at least.
        """
        budgets = self._smaller_units(contest.budget_units)
        for number, units in enumerate(budgets, 1):
            assert contest.best is not None
            best_us = contest.best.replay.time_us
            self.progress("smaller budgets", number, len(budgets))
            below = self._searched(units, best_us)
            if below.best is not None and below.best.replay.time_us < best_us:
                contest.offer(below.best.strategy, below.best.program)
            if below.best is None and self._size() > FINE:
                return  # on small graphs less may be found where more was not
            if not self._has_gap(below) or below.own_bound_us >= best_us:
                return

    def _smaller_units(self, units: int) -> list[int]:
        plain = self._peak_bytes(self.subject.plain()) // self.subject.unit
        count = GRID if self._size() <= FINE else COARSE_GRID
        shares = {plain * k // count for k in range(1, count)}
        return sorted((share for share in shares if 0 < share < units), reverse=True)

    def _searched(self, units: int, enough_us: float) -> Contest:
        """Return the contest of a smaller budget, as far as it may take less than `enough_us`.

        What was searched stays; more of it cannot take less than the bound that ended it.
        """
        if units not in self.smaller:
            waiting: list[Searching | None] = [self.below or self.stages, self.rotor]
            waiting += [self.long] * (self._size() <= FINE)
            self.smaller[units] = Contest(self.subject, units * self.subject.unit), waiting
        found, waiting = self.smaller[units]
        while waiting and found.own_bound_us < enough_us:
            self._search(found, [waiting.pop(0)])
        return found

    def smallest(self) -> Program:
        """Return the program of least peak that is found, in a number of searches that is bounded.

        Another search may find one of a lower peak.
        """
        self.progress("smallest budget", 1, ATTEMPTS)
        fine = self.subject.chain is None and self._size() <= FINE
        close = not fine and not self._too_large()  # rockmate's is
        numbers = count(2)

        def attempt(units: int) -> Program | None:
            self.progress("smallest budget", min(next(numbers), ATTEMPTS), ATTEMPTS)
            repairs = self.stages if self._repairs() else None
            waits = close and repairs and self.subject.chain is None  # long, to find nothing mostly
            return self._within(units, None if waits else self.short, repairs)

        if fine and (found := attempt(self.subject.whole.floor_bytes())) is not None:
            return found  # what one operation alone needs, which is often the answer
        known = [self.subject.plain(), self.rotor.smallest()]
        known += [self.rockmate.smallest()] if close else []
        least = min(known, key=self._peak_bytes)
        found = least_program(self.subject, attempt, least, exact=fine, close=close)
        return self._lowered(found) if fine else found

    def _lowered(self, program: Program) -> Program:
        """Search for longer just below what is known, until nothing is found."""
        found: Program | None = program
        while found is not None:
            program = found
            found = self._within(self._peak_bytes(program) // self.subject.unit - 1, self.long)
        return program

    def _within(self, units: int, *entrants: Searching | None) -> Program | None:
        """Return the first program within a budget that some entrants find."""
        contest = Contest(self.subject, units * self.subject.unit)
        for entrant in entrants:
            if entrant is not None and contest.best is None and not contest.settled:
                entrant.enter(contest)
        return None if contest.best is None else contest.best.program

    def _repairs(self) -> bool:
        """Tell whether an attempt is worth plans of stages, whose repairs take long on wide graphs.

        There rockmate knows the least already, unless it is left out.
        """
        return self.subject.chain is not None or self._size() <= WIDE or self._too_large()

    def _peak_bytes(self, program: Program) -> int:
        return self.subject.judge(program)[1].peak_bytes

    def unproved(self) -> tuple[int, int]:
        return self.rockmate.unproved()
