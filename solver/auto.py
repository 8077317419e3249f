"""Strategy auto: the best of what suits the size of the problem.

The plain program where it fits. Else rockmate's front, which has the programs of rotor, per-layer
and none in it.
"""

from __future__ import annotations

from remat_gen.solver.chain import Progress
from remat_gen.solver.contest import Contest
from remat_gen.solver.entrants import FrontEntrant
from remat_gen.solver.program import Program
from remat_gen.solver.search import Effort
from remat_gen.solver.subject import Subject


class Auto:
    """See the module's text."""

    def __init__(self, subject: Subject, effort: Effort, progress: Progress | None) -> None:
        """Set up; nothing is searched yet."""
        self.subject, self.effort = subject, effort
        self.rockmate = FrontEntrant(subject, "rockmate", progress)

    def enter(self, contest: Contest) -> None:
        """Offer all that is found, until something is known to be optimal."""
        contest.offer("none", self.subject.plain())
        if not contest.optimal:
            self.rockmate.enter(contest)

    def smallest(self) -> Program:
        """Return the program of least peak."""
        return self.rockmate.smallest()

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        return self.rockmate.unproved()
