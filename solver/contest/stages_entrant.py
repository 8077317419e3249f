"""Schedules of large graphs from plans of the stage program, repaired to fit.

With a single stage, where the plain schedule is tightest, the stage program is a small one whose
optimum is close to that of all schedules, and mostly over the budget elsewhere. Each round makes
a stage of another tight place or, where there are enough, plans for a smaller budget than there is.
The plan is replayed, re-runs are added until it fits, and it is improved like any other program.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.blocks.judged_runs import Judged, judge
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.stages.exact_search import ALL, IN_BLOCKS
from remat_gen.solver.stages.first_run_order import FirstRuns, first_runs
from remat_gen.solver.stages.plan_runs import StageChoice, expand, tight_turns
from remat_gen.solver.stages.stage_program import sketch_stages
from remat_gen.solver.states.bit_graph import BitGraph

NAME = "stages"
ROUNDS = {Effort.QUICK: 5, Effort.NORMAL: 9, Effort.THOROUGH: 24}
BARE = 1500  # operations of a bare graph times rounds: there a repair may take some ten seconds
STAGES = 3
APART = 10  # operations between two stages: neighbours are tight together
STEP_DOWN = 0.95  # of the planned budget, at most, where the last plan did not fit
FAR = 2.0  # times the budget: no plan of a few stages that began so was ever made to fit
PATIENCE = 2  # rounds in a row that plan for less and need no less: the next ones would not either


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
        sketch = _Sketch(self.subject, self.repairs, contest)
        for _ in range(self._rounds()):
            if contest.settled or not sketch.round() or contest.within(self.near):
                break
        holds_for = ALL if self.subject.chain is None else IN_BLOCKS
        contest.take(NAME, Found(None, sketch.bound_us, holds_for))

    def _rounds(self) -> int:
        most = ROUNDS[self.effort]
        if self.subject.chain is not None or self.effort is Effort.THOROUGH:
            return most
        return max(1, min(most, BARE // len(self.subject.whole.operations)))


@dataclass(slots=True)
class _Sketch:
    """What the rounds carry on: the stages so far, the share of the budget that is planned for."""

    subject: Subject
    repairs: Repairs
    contest: Contest
    graph: BitGraph = field(init=False)
    order: FirstRuns = field(init=False)
    choice: StageChoice = field(init=False)
    share: float = 1.0
    bound_us: float = 0.0
    least_bytes: float = float("inf")
    in_vain: int = 0

    def __post_init__(self) -> None:
        """Make the plain schedule's tightest place the first stage."""
        self.graph = BitGraph(self.subject.whole)
        self.order = first_runs(self.graph, in_blocks=self.subject.chain is not None)
        plain = judge(self.graph.problem, self.graph.chain, range(self.graph.count))
        assert plain is not None, "the given order is not topological"
        self.choice = StageChoice.of(self.order, tight_turns(plain, self.contest.budget_units))

    def round(self) -> bool:
        """Plan, repair and offer; tell whether another round can differ."""
        units, graph = self.contest.budget_units, self.graph
        outcome = sketch_stages(graph, self.order, int(units * self.share), self.choice.stages)
        if self.share == 1.0 and not outcome.infeasible:
            self.bound_us = max(self.bound_us, outcome.bound_us)
        if outcome.plan is None:
            return False
        judged = judge(graph.problem, graph.chain, expand(graph, outcome.plan))
        if judged is None:
            return False
        fitted = self.repairs.fitted(self.subject.program(judged.runs), units)
        if fitted is not None:
            self.contest.offer(NAME, fitted)
        return self._tighten(judged)

    def _tighten(self, judged: Judged) -> bool:
        """Add a stage where the plan is over the budget, or plan for less; False where it fits."""
        budget = self.contest.budget_units
        peak = judged.replay.peak_bytes
        if peak <= budget or self._hopeless(peak):
            return False
        tight, stages = tight_turns(judged, budget), self.choice.stages
        if len(stages) >= STAGES or not self.choice.add(tight, 1, APART, stages):
            self.share *= max(STEP_DOWN, budget / peak)
        return True

    def _hopeless(self, peak: int) -> bool:
        """Tell whether a plan is far off, or smaller ones have needed no less for a while."""
        if peak > FAR * self.contest.budget_units:
            return True
        self.in_vain = 0 if peak < self.least_bytes else self.in_vain + 1
        self.least_bytes = min(self.least_bytes, peak)
        return self.in_vain >= PATIENCE
