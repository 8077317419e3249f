"""The search for the optimum, as the contest of a budget sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stages.exact_search import Limits, search
from remat_gen.solver.stages.smallest_budget import least
from remat_gen.solver.stages.stage_program import Answers

NAME = "exact"
PROVED = 150  # nodes of a bare graph up to which its least budget is proved, or nearly so


@dataclass(frozen=True, slots=True)
class ExactEntrant:
    """Searches for the optimum, from the best that others found."""

    subject: Subject
    limits: Limits
    answers: Answers = field(default_factory=dict)
    name: str = NAME

    @property
    def proves_smallest(self) -> bool:
        """Tell whether the least budget can be searched for directly: else that takes long."""
        return self.subject.chain is None and len(self.subject.problem.operations) <= PROVED

    def enter(self, contest: Contest) -> None:
        """Offer every better schedule as it is found."""
        start = None if contest.best is None else tuple(contest.best.program.flat())
        found = search(
            self.subject.whole,
            contest.budget_units,
            incumbent=start,
            on_better=contest.listen(NAME),
            on_bound=contest.hear_bound,
            limits=self.limits,
            answers=self.answers,
        )
        contest.take(NAME, found)

    def smallest(self, known: Program) -> Program:
        """Return the program of least peak that is found for a graph which `proves_smallest`."""
        found, _ = least(self.subject.whole, Effort.NORMAL)
        return known if found is None else self.subject.program(found.runs)
