"""Programs made to fit a budget by added re-runs, and improved within it: by ruin and recreate."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from random import Random

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.improve.add_reruns import PriceRule
from remat_gen.solver.improve.memory_measure import started
from remat_gen.solver.improve.retain_more import retain_more
from remat_gen.solver.improve.ruin_and_recreate import ANYWHERE, IN_SEGMENTS, Window
from remat_gen.solver.improve.run_timeline import ProblemArrays
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.sums import added

TRIALS = 20  # once a program fits
ROUNDS = 6  # for the best so far, whichever search found it
ROUND_TRIALS = 100
IDLE = 2  # rounds in a row without a gain: then it is left
WORK = 60_000  # operations times trials, a round: a trial of thousands takes a tenth of a second


@dataclass(frozen=True)
class Repairs:
    """Repairs of programs of `subject.whole`; budgets are in the searches' units."""

    subject: Subject
    near: float = 0.0  # what part of the time above the bound is hardly anything
    name: str = "improve"

    def enter(self, contest: Contest) -> None:
        """Improve the best, under its finder's name, until it is near the bound."""
        trials = min(ROUND_TRIALS, WORK // len(self.subject.whole.operations))
        idle = 0
        for seed in range(ROUNDS):
            best = contest.best
            if best is None or idle == IDLE or contest.settled or contest.within(self.near):
                return
            window = self._window(contest.budget_units, seed)
            improved = window.improved(started(self._arrays, best.program), trials)
            contest.offer(best.strategy, improved.candidate().program)
            idle = idle + 1 if contest.best is best else 0

    def fitted(self, program: Program, budget_units: int, limit_us: float = inf) -> Program | None:
        """Return a program that fits, improved; None if no re-runs do within `limit_us`."""
        window = self._window(budget_units, 0)
        fitting = window.fit(started(self._arrays, program), limit_us, PriceRule())
        if fitting is None:
            return None
        fitting = retain_more(fitting, budget_units)
        return window.improved(fitting, TRIALS).candidate().program

    def _window(self, budget_units: int, seed: int) -> Window:
        moving = ANYWHERE if self.subject.chain is None else IN_SEGMENTS
        return Window(budget_units, self._once_us, self._once_us, Random(seed), moving)

    @cached_property
    def _arrays(self) -> ProblemArrays:
        return ProblemArrays(self.subject.whole)

    @cached_property
    def _once_us(self) -> float:
        return added(operation.time_us for operation in self.subject.whole.operations)
