"""Programs made to fit a budget by added re-runs, and improved: others', and plans of few stages.

With a single stage, where the plain schedule is tightest, the stage program is a small one whose
optimum is close to that of all schedules, and mostly over the budget elsewhere. Each round makes
a stage of another tight place or, where there are enough, plans for a smaller budget than there is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from random import Random

from remat_gen.solver.blocks.judged_runs import judge
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.improve.add_reruns import PriceRule
from remat_gen.solver.improve.memory_measure import started
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.retain_more import retain_more
from remat_gen.solver.improve.ruin_and_recreate import ANYWHERE, IN_SEGMENTS, Window
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.stages.exact_search import ALL, IN_BLOCKS
from remat_gen.solver.stages.first_run_order import first_runs
from remat_gen.solver.stages.plan_runs import StageChoice, expand, tight_turns
from remat_gen.solver.stages.stage_program import sketch_stages
from remat_gen.solver.states.bit_graph import BitGraph

NAME = "stages"
STAGE_ROUNDS = {Effort.QUICK: 5, Effort.NORMAL: 9, Effort.THOROUGH: 24}
BARE = 1500  # operations of a bare graph times rounds: there a repair may take some ten seconds
STAGES = 3
APART = 10  # operations between two stages: neighbours are tight together
STEP_DOWN = 0.95  # of the planned budget, at most, where the last plan did not fit
FAR = 2.0  # times the budget: no plan of a few stages that began so was ever made to fit
PATIENCE = 2  # rounds in a row that plan for less and need no less: the next ones would not either
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
        once_us = self.subject.whole.once_us
        return Window(budget_units, once_us, once_us, Random(seed), moving)

    @cached_property
    def _arrays(self) -> ProblemArrays:
        return ProblemArrays(self.subject.whole)


@dataclass(frozen=True, slots=True)
class StagesEntrant:
    """Offers what some rounds of plan and repair find."""

    subject: Subject
    repairs: Repairs
    effort: Effort
    near: float = 0.0  # what part of the time above the bound is hardly anything
    name: str = NAME

    def enter(self, contest: Contest) -> None:
        """Offer every repaired plan that fits, and the bound."""
        graph, budget = BitGraph(self.subject.whole), contest.budget_units
        in_blocks = self.subject.chain is not None
        order = first_runs(graph, in_blocks=in_blocks)
        plain = judge(graph.problem, graph.chain, range(graph.count))
        assert plain is not None, "the given order is not topological"
        choice = StageChoice.of(order, tight_turns(plain, budget))
        share, bound_us, least_bytes, in_vain = 1.0, 0.0, inf, 0
        for _ in range(self._rounds()):
            outcome = sketch_stages(graph, order, int(budget * share), choice.stages)
            if share == 1.0 and not outcome.infeasible:
                bound_us = max(bound_us, outcome.bound_us)
            runs = None if outcome.plan is None else expand(graph, order, outcome.plan)
            planned = None if runs is None else judge(graph.problem, graph.chain, runs)
            if planned is None:
                break
            fitted = self.repairs.fitted(self.subject.program(planned.runs), budget)
            if fitted is not None:
                contest.offer(NAME, fitted)
            peak = planned.replay.peak_bytes
            in_vain = 0 if peak < least_bytes else in_vain + 1
            least_bytes = min(least_bytes, peak)
            if peak <= budget or peak > FAR * budget or in_vain == PATIENCE:
                break
            tight = tight_turns(planned, budget)
            if len(choice.stages) >= STAGES or not choice.add(tight, 1, APART, choice.stages):
                share *= max(STEP_DOWN, budget / peak)
            if contest.settled or contest.within(self.near):
                break
        contest.take(NAME, Found(None, bound_us, IN_BLOCKS if in_blocks else ALL))

    def _rounds(self) -> int:
        most = STAGE_ROUNDS[self.effort]
        if self.subject.chain is not None or self.effort is Effort.THOROUGH:
            return most
        return max(1, min(most, BARE // len(self.subject.whole.operations)))
