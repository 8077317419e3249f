"""Bound and solve by the stage program, with stages added where its plans exceed the budget.

A plan is put in order and replayed. Where it exceeds the budget, the tight operations become
stages, or, where none is left to add, rows within an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, Judged
from remat_gen.solver.stages.first_run_order import FirstRuns
from remat_gen.solver.stages.plan_runs import StageChoice, Within, expand, tight_turns, tight_within
from remat_gen.solver.stages.stage_program import Answers, solve_stages
from remat_gen.solver.states.bit_graph import BitGraph

TOLERANCE = 1e-6  # of the time of all operations: what HiGHS answers for
STAGES_A_ROUND = 3
WITHIN_A_ROUND = 5
APART = 3  # operations between two stages added at once: neighbours are tight together


@dataclass(slots=True)
class StageRefinement:
    """The search: `bound_us` holds for all schedules; `infeasible` is proved.

    `work` bounds HiGHS's work on all programs, as `StageSolution` counts it. `answers` are those of
    programs solved so far, in whatever order.
    """

    graph: BitGraph
    order: FirstRuns
    incumbent: IncumbentSchedule
    work: int
    answers: Answers = field(default_factory=dict)
    bound_us: float = 0.0
    infeasible: bool = False
    choice: StageChoice = field(init=False)
    within: frozenset[Within] = frozenset()
    _hard: bool = False  # the last program did not end at its root: those with more stages will not

    def search(self, plain: Judged) -> StageRefinement:
        """Search, beginning with a stage where the plain schedule is tightest; return itself."""
        tight = tight_turns(plain, self.incumbent.budget_bytes)
        self.choice = StageChoice.of(self.order, tight)
        while self.work > 0 and not self.closed() and self._round():
            pass
        return self

    def closed(self) -> bool:
        """Tell whether the best schedule is proved optimal, or that there is none."""
        tolerance = self.graph.total_us * TOLERANCE
        return self.infeasible or self.incumbent.time_us <= self.bound_us + tolerance

    def _round(self) -> bool:
        """Solve the program as it stands, and add stages; tell whether any were added."""
        budget_bytes = self.incumbent.budget_bytes
        outcome = solve_stages(
            self.graph,
            self.order,
            budget_bytes,
            self.choice.stages,
            self.work,
            self.answers,
            within=self.within,
            hard=self._hard,
        )
        self.work -= outcome.work
        self._hard = outcome.branched
        if outcome.infeasible:
            self.bound_us, self.infeasible = self.incumbent.time_us, self.incumbent.best is None
            return False
        self.bound_us = max(self.bound_us, min(outcome.bound_us, self.incumbent.time_us))
        if outcome.plan is None:
            return False
        judged = self.incumbent.offer(expand(self.graph, outcome.plan))
        if judged is None or self.closed():
            return False
        if self.choice.add(tight_turns(judged, budget_bytes), STAGES_A_ROUND, APART):
            return True
        new = tight_within(judged, budget_bytes, self.choice.stages)
        new = [run for run in new if run not in self.within][:WITHIN_A_ROUND]
        self.within |= frozenset(new)
        return bool(new)
