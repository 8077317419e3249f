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
8. where nothing was searched to its end, re-runs that the slack makes needless are left out.

The programs of the second, fourth and sixth do not depend on the budget, and an optimum is one for
every budget, so that more memory costs time only where no search came to its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.ahead import Ahead
from remat_gen.solver.arrays import arrays_of
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
DESCENTS = 40  # at most, to the smallest budget; each lowers the peak by what one value takes


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

    def enter(self, contest: Contest) -> None:
        """Offer all that is found."""
        contest.offer("none", self.subject.plain())
        if contest.settled:
            return
        with Ahead(CandidatesSearch(self.rockmate, contest.budget_units), self._begins()) as ahead:
            self._enter_in_order(contest, ahead)
        if not contest.settled:
            self._use_slack(contest)

    def _enter_in_order(self, contest: Contest, ahead: Ahead[FrontEntrant]) -> None:
        stages = [*self.cheap, self.short, self.ogc, self.sketches, self.rockmate, self.long]
        entrants = [entrant for entrant in stages if entrant is not None]
        for number, entrant in enumerate(entrants):
            if contest.settled:
                return
            if entrant is self.rockmate and self._leaves_out(contest):
                continue
            self.progress(entrant.name, number + 1, len(entrants))
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

    def smallest(self) -> Program:
        """Return the program of least peak that is found."""
        if self.short is not None and self.short.proves_smallest:
            return self.short.smallest(self.subject.plain())
        programs = [entrant.smallest() for entrant in (*self.cheap, self.ogc, self.rockmate)]
        least = min(programs, key=self._peak_bytes)
        return self._descended(least if self.short is None else self.short.smallest(least))

    def _descended(self, least: Program) -> Program:
        """Return what is found below a program's peak, until one byte less fails."""
        for _ in range(DESCENTS):
            contest = Contest(self.subject, self._peak_bytes(least) - 1)
            self.enter(contest)
            if contest.best is None:
                break
            least = contest.best.program
        return least

    def _peak_bytes(self, program: Program) -> int:
        return self.subject.judge(program)[1].peak_bytes

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        return self.rockmate.unproved()
