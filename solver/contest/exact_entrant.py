"""The search for the optimum, as the contest of a budget sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.stages.exact_search import Limits, search
from remat_gen.solver.stages.stage_program import Answers

NAME = "exact"


@dataclass(frozen=True, slots=True)
class ExactEntrant:
    """Searches for the optimum, from the best that others found.

    Where that is `near` the bound of our own schedules, only the bound of all others is missing.
    """

    subject: Subject
    limits: Limits
    answers: Answers = field(default_factory=dict)
    near: float = 0.0
    name: str = NAME

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
            in_blocks=not contest.within(self.near),
        )
        contest.take(NAME, found)
