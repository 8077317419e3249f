"""Strategy auto: the best of what suits the size of the problem.

In this order, until something is known to be optimal:
1. the plain program, where it fits;
2. cheap published strategies: an interrupted solve has their best behind it;
3. on small problems, searches for the optimum;
4. rockmate's front, which has the programs of rotor and per-layer in it.

All but the third know their programs without the budget, so that more memory never costs time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.contest import Contest
from remat_gen.solver.entrants import Entrant
from remat_gen.solver.program import Program
from remat_gen.solver.subject import Subject


@dataclass(frozen=True, slots=True)
class Auto:
    """See the module's text; `thorough` are the searches for the optimum."""

    subject: Subject
    cheap: Sequence[Entrant]
    thorough: Sequence[Entrant]
    rockmate: Entrant

    def enter(self, contest: Contest) -> None:
        """Offer all that is found."""
        contest.offer("none", self.subject.plain())
        for entrant in (*self.cheap, *self.thorough, self.rockmate):
            if not (contest.optimal or contest.ruled_out):
                entrant.enter(contest)

    def smallest(self) -> Program:
        """Return the program of least peak."""
        return self.rockmate.smallest()

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        return self.rockmate.unproved()
