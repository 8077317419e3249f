"""What ruin and recreate makes of the best schedule so far, whichever search found it."""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.repairs import Repairs

ROUNDS = 6
TRIALS = 100  # a round
IDLE = 2  # rounds in a row without a gain: then it is left
WORK = 60_000  # operations times trials, a round: a trial of thousands takes a tenth of a second


@dataclass(frozen=True, slots=True)
class ImproveEntrant:
    """Offers, under its finder's name, what some rounds make of a contest's best."""

    repairs: Repairs
    near: float  # what part of the time above the bound is hardly anything
    name: str = "improve"

    def enter(self, contest: Contest) -> None:
        """Improve the best, if there is one, until it is near the bound."""
        trials = min(TRIALS, WORK // len(self.repairs.subject.whole.operations))
        idle = 0
        for seed in range(ROUNDS):
            best = contest.best
            if best is None or idle == IDLE or contest.settled or contest.within(self.near):
                return
            program = self.repairs.improved(best.program, contest.budget_units, trials, seed)
            contest.offer(best.strategy, program)
            idle = idle + 1 if contest.best is best else 0
