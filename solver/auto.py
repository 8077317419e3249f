"""Strategy auto: the best of what suits the size of the problem.

In this order, until something is known to be the best:
1. the plain program, where it fits;
2. cheap published strategies: an interrupted solve has their best behind it;
3. a short search for the optimum: it ends on most models, however large, since a few tight places
   decide;
4. ogc, whose time grows as the square of the operations;
5. plans of a few stages, repaired, up to some thousand operations;
6. rockmate's front, which has the programs of rotor and per-layer in it, unless the bound says that
   hardly anything is left to gain, or the graph is a bare one so large that it takes minutes; a
   second process searches them from the beginning, if they may be worth it;
7. on small problems a long search for the optimum, from the best so far;
8. where nothing was searched to its end, re-runs that the slack makes needless are left out;
9. where a gap is left, what is found within smaller budgets, so that more memory costs no time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from remat_gen.solver.ahead import Ahead
from remat_gen.solver.arrays import arrays_of
from remat_gen.solver.bisection import Bisection
from remat_gen.solver.contest import Contest
from remat_gen.solver.entrants import CandidatesSearch, Entrant, FrontEntrant
from remat_gen.solver.exact_entrant import ExactEntrant
from remat_gen.solver.improve import retain_more, trial_of
from remat_gen.solver.program import Program
from remat_gen.solver.search import Progress
from remat_gen.solver.sketches import SketchEntrant
from remat_gen.solver.subject import Subject
from remat_gen.solver.timeline import timeline_of

SMALL = 100  # operations below which all programs are there in a second
LARGE = 500  # operations of a bare graph
FINE = 40  # operations of a graph that is searched in seconds, within many smaller budgets
GRID, COARSE_GRID = 64, 8  # smaller budgets, as shares of the plain peak


@dataclass(frozen=True, slots=True)
class Auto:
    """See the module's text; `short` and `long` are the searches for the optimum, if any.

    `near`: what part of the time above the bound is hardly anything.
    """

    subject: Subject
    cheap: Sequence[Entrant]
    short: ExactEntrant | None
    ogc: Entrant
    sketches: SketchEntrant | None
    rockmate: FrontEntrant
    long: ExactEntrant | None
    near: float
    progress: Progress
    name: str = "auto"
    smaller: dict[int, Contest] = field(default_factory=dict)

    def enter(self, contest: Contest) -> None:
        """Offer all that is found, for this budget and for smaller ones."""
        contest.offer("none", self.subject.plain())
        if contest.settled:
            return
        with Ahead(CandidatesSearch(self.rockmate, contest.budget_units), self._begins()) as ahead:
            self._enter_in_order(contest, ahead)
        if not contest.settled:
            self._use_slack(contest)
        if contest.best is not None and not contest.settled and not contest.within(self.near):
            self._take_smaller(contest)

    def _enter_in_order(self, contest: Contest, ahead: Ahead[FrontEntrant]) -> None:
        stages = [*self.cheap, self.short, self.ogc, self.sketches, self.rockmate, self.long]
        entrants = [entrant for entrant in stages if entrant is not None]
        for number, entrant in enumerate(entrants):
            if contest.settled:
                return
            if entrant is self.rockmate and self._leaves_out(contest):
                continue
            self.progress(entrant.name, number + 1, len(entrants))
            with contest.tolerating(entrant.name):
                if entrant is self.rockmate:
                    self.rockmate.take_over(ahead.wait(self.progress))
                entrant.enter(contest)

    def _begins(self) -> bool:
        """Tell whether rockmate's programs take long, and may be worth it."""
        operations = len(self.subject.whole.operations)
        return operations >= SMALL and not self._too_large()

    def _leaves_out(self, contest: Contest) -> bool:
        """Tell whether rockmate's time is not worth what it may gain."""
        return contest.within(self.near) or (self._too_large() and contest.best is not None)

    def _too_large(self) -> bool:
        bare = self.subject.chain is None
        return bare and len(self.subject.whole.operations) > LARGE and self.near > 0

    def _use_slack(self, contest: Contest) -> None:
        """Leave out what the best can do without; rockmate's programs have been through this."""
        best = contest.best
        if best is None or best.strategy == self.rockmate.name:
            return
        start = trial_of(timeline_of(arrays_of(self.subject.whole), best.program))
        improved = retain_more(start, contest.budget_units)
        contest.offer(best.strategy, improved.candidate().program)

    def _take_smaller(self, contest: Contest) -> None:
        """Offer what is found within smaller budgets, which fits as well, the largest first.

        They are fixed shares of the plain peak: what is found within one does not depend on the
        budget asked for. So more memory costs no time, between these at least.
        """
        budgets = self._smaller_units(contest.budget_units)
        for number, units in enumerate(budgets, 1):
            self.progress("smaller budgets", number, len(budgets))
            below = self._searched(units)
            if below.best is None:
                return
            contest.offer(below.best.strategy, below.best.program)
            if below.settled or below.within(self.near):
                return

    def _smaller_units(self, units: int) -> list[int]:
        plain = self._peak_bytes(self.subject.plain()) // self.subject.unit
        count = GRID if len(self.subject.whole.operations) <= FINE else COARSE_GRID
        return sorted({plain * k // count for k in range(1, count)} & set(range(1, units)))[::-1]

    def _searched(self, units: int) -> Contest:
        """Return the contest of one of the smaller budgets, which is searched once."""
        if units not in self.smaller:
            found = Contest(self.subject, units * self.subject.unit)
            long = self.long if len(self.subject.whole.operations) <= FINE else None
            for entrant in (self.short, self.sketches, long):
                if entrant is not None and not found.settled:
                    with found.tolerating(entrant.name):
                        entrant.enter(found)
            self.smaller[units] = found
        return self.smaller[units]

    def smallest(self) -> Program:
        """Return the program of least peak that is found, in a number of searches that is bounded.

        Another search may find one of a lower peak, unless the graph is small and it is proved.
        """
        self.progress("smallest budget", 1, 2)
        if self.short is not None and self.short.proves_smallest:
            return self.short.smallest(self.subject.plain())
        known = [self.subject.plain()]
        if not self._too_large():
            known.append(self.rockmate.smallest())
        self.progress("smallest budget", 2, 2)
        least = min(known, key=self._peak_bytes)
        return Bisection(self.subject, self._attempt, quick=False).least(least)

    def _attempt(self, units: int) -> Program | None:
        """Return a program within a budget that a short search finds."""
        contest = Contest(self.subject, units * self.subject.unit)
        for entrant in (self.short, self.sketches):
            if entrant is not None and contest.best is None and not contest.settled:
                entrant.enter(contest)
        return None if contest.best is None else contest.best.program

    def _peak_bytes(self, program: Program) -> int:
        return self.subject.judge(program)[1].peak_bytes

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        return self.rockmate.unproved()
