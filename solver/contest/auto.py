"""Strategy auto: the best of what suits the size of the problem, until it is known to be the best.

The exact search ends on most models, however large, since a few tight places decide. Plans of a few
stages follow; of a thousand operations on they come first, and where they are near the bound the
search only bounds all other schedules. Chain programs come last, where a gap is left that is worth
it: rotor's take next to no time; rockmate's wait on small graphs without a chain for a longer exact
search, which may spare all of z3's time. While there is a gap, the best is improved, and what is
found within smaller budgets is taken, so that more memory costs no time.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TypeAlias

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.entrants import ExactEntrant, FrontEntrant, least_program
from remat_gen.solver.contest.repairs import Repairs, StagesEntrant
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Progress
from remat_gen.solver.stages.exact_search import GLANCE, LIMITS, Limits

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

    def __init__(self, subject: Subject, effort: Effort, progress: Progress) -> None:
        """Set up: `short`, `long` and `below`, for smaller budgets, search exactly."""
        self.subject, self.progress = subject, progress
        self.near, self.close = NEAR[effort], CLOSE[effort]
        self.size, self.bare = size, bare = len(subject.whole.operations), subject.chain is None
        self.too_large = bare and size > LARGE and self.near > 0

        def exact(limits: Limits, most: int, near: float = 0.0) -> ExactEntrant | None:
            return ExactEntrant(subject, limits, near) if size <= most else None

        repairs, sketched = Repairs(subject, self.near), size in SKETCHED
        self.stages = StagesEntrant(subject, repairs, effort, self.near) if sketched else None
        self.improve = None if bare else repairs
        self.rotor = FrontEntrant(subject, "rotor", progress, effort)
        self.rockmate = FrontEntrant(subject, "rockmate", progress, effort, self.rotor)
        self.short = exact(LIMITS[Effort.QUICK], SHORT_SEARCH, self.near)
        shortly = not bare and effort is not Effort.THOROUGH
        self.long = exact(LIMITS[effort], min(LONG_SEARCH[effort], FINE if shortly else size))
        self.below = exact(LIMITS[Effort.QUICK] if size <= FINE else GLANCE, SHORT_SEARCH)
        self.smaller: dict[int, Contest] = {}

    def enter(self, contest: Contest) -> None:
        contest.offer("none", self.subject.plain())
        deep = self.size >= DEEP and not self.bare and self.near > 0
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
        return entrant is not self.rockmate or contest.best is None or not self.too_large

    def _has_gap(self, contest: Contest) -> bool:
        return not (contest.settled or contest.within(self.near))

    def _take_smaller(self, contest: Contest) -> None:
        """Offer what is found within smaller budgets, which fits as well, the largest first.

        They are fixed shares of the plain peak: what is found within one does not depend on the
        budget asked for. So more memory costs no time, between these at least.
        """
        plain = self._peak_bytes(self.subject.plain()) // self.subject.unit
        parts = GRID if self.size <= FINE else COARSE_GRID
        shares = {plain * k // parts for k in range(1, parts)}
        budgets = sorted((s for s in shares if 0 < s < contest.budget_units), reverse=True)
        for number, units in enumerate(budgets, 1):
            assert contest.best is not None
            best_us = contest.best.replay.time_us
            self.progress("smaller budgets", number, len(budgets))
            below = self._searched(units)
            if below.best is not None and below.best.replay.time_us < best_us:
                contest.offer(below.best.strategy, below.best.program)
            if below.best is None and self.size > FINE:
                return  # on small graphs less may be found where more was not
            if not self._has_gap(below) or below.own_bound_us >= best_us:
                return

    def _searched(self, units: int) -> Contest:
        """Return the contest of a smaller budget, which is searched once."""
        if units not in self.smaller:
            self.smaller[units] = found = Contest(self.subject, units * self.subject.unit)
            long = self.long if self.size <= FINE else None
            self._search(found, (self.below or self.stages, self.rotor, long))
        return self.smaller[units]

    def smallest(self) -> Program:
        """Return the program of least peak that is found, in a number of searches that is bounded.

        Another search may find one of a lower peak.
        """
        self.progress("smallest budget", 1, ATTEMPTS)
        fine = self.bare and self.size <= FINE
        close = not fine and not self.too_large  # rockmate's is
        # Repairs take long on wide graphs, where rockmate knows the least already, unless left out;
        # beside them the exact search takes long on bare graphs, to find nothing mostly.
        repairs = self.stages if not self.bare or self.size <= WIDE or self.too_large else None
        short = None if close and repairs and self.bare else self.short
        numbers = count(2)

        def attempt(units: int) -> Program | None:
            self.progress("smallest budget", min(next(numbers), ATTEMPTS), ATTEMPTS)
            return self._within(units, short, repairs)

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

    def _peak_bytes(self, program: Program) -> int:
        return self.subject.judge(program)[1].peak_bytes

    def unproved(self) -> tuple[int, int]:
        return self.rockmate.unproved()
