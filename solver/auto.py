"""Strategy auto: the best of what suits the size of the problem.

In this order, until something is known to be optimal:
1. the plain program, where it fits;
2. cheap published strategies: an interrupted solve has their best behind it;
3. rockmate's front, which has the programs of rotor and per-layer in it.

All of them know their programs without the budget, so that more memory never costs time.
"""

from __future__ import annotations

from collections.abc import Sequence

from remat_gen.solver.contest import Contest
from remat_gen.solver.entrants import Entrant
from remat_gen.solver.program import Program
from remat_gen.solver.subject import Subject


class Auto:
    """See the module's text."""

    def __init__(self, subject: Subject, cheap: Sequence[Entrant], rockmate: Entrant) -> None:
        """Set up; nothing is searched yet."""
        self.subject, self.cheap, self.rockmate = subject, cheap, rockmate

    def enter(self, contest: Contest) -> None:
        """Offer all that is found."""
        contest.offer("none", self.subject.plain())
        for entrant in (*self.cheap, self.rockmate):
            if not contest.optimal:
                entrant.enter(contest)

    def smallest(self) -> Program:
        """Return the program of least peak."""
        programs = [self.rockmate.smallest()]
        return min(programs, key=lambda program: self.subject.judge(program)[1].peak_bytes)

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        return self.rockmate.unproved()
