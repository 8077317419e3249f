"""Bound and solve by the stage program, with stages added where its plans exceed the budget.

A plan is put in order and replayed. Where it exceeds the budget, the tight operations become
stages, or, where none is left to add, rows within an interval.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, Judged
from remat_gen.solver.stages.first_run_order import FirstRuns, heaviest_chain
from remat_gen.solver.stages.plan_runs import RunExcess, excesses, expand
from remat_gen.solver.stages.stage_program import Answers, Cuts, StagePlan, solve_stages
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import mask_of

TOLERANCE = 1e-6  # of the time of all operations: what HiGHS answers for
STAGES_A_ROUND = 3
APART = 3  # operations between two stages added at once: neighbours are tight together
WITHIN_A_ROUND = 5


@dataclass(slots=True)
class StageRefinement:
    """The search: `bound_us` holds for all schedules; `infeasible` is proved; `plan` is the last.

    `work` bounds HiGHS's work on all programs, as `StageSolution` counts it. `answers` are those of
    programs solved so far, in whatever order. With `easy`, only the first program of several stages
    is begun where a hard one would take more work than is left.
    """

    graph: BitGraph
    order: FirstRuns
    incumbent: IncumbentSchedule
    work: int
    answers: Answers = field(default_factory=dict)
    easy: bool = False
    bound_us: float = 0.0
    infeasible: bool = False
    plan: StagePlan | None = None
    _hard: bool = False  # the last program did not end at its root: those with more stages will not
    _chain: int = 0
    _cuts: Cuts = field(default_factory=lambda: Cuts(()))

    def search(self, plain: Judged) -> StageRefinement:
        """Search, beginning with a stage where the plain schedule is tightest; return itself."""
        over = excesses(plain, self.incumbent.budget_bytes, ())
        weights = [1.0] * self.graph.count
        budget = max(self.incumbent.budget_bytes, 1)
        for excess in over:
            weights[excess.operation] += len(weights) * (1 + excess.nbytes / budget)
        self._chain = heaviest_chain(self.order, weights)
        self._add_stages(over, 1)
        while self.work > 0 and not self.closed() and self._round():
            pass
        return self

    def closed(self) -> bool:
        """Tell whether the best schedule is proved optimal, or that there is none."""
        tolerance = self.graph.total_us * TOLERANCE
        return self.infeasible or self.incumbent.time_us <= self.bound_us + tolerance

    def _round(self) -> bool:
        """Solve the program as it stands, and add to it; tell whether anything was added."""
        budget_bytes = self.incumbent.budget_bytes
        outcome = solve_stages(
            self.graph,
            self.order,
            budget_bytes,
            self._cuts,
            self.work,
            self.answers,
            hard=self._hard,
        )
        self.work -= outcome.work
        self._hard = outcome.branched or (self.easy and len(self._cuts.stages) > 1)
        if outcome.infeasible:
            self.bound_us, self.infeasible = self.incumbent.time_us, self.incumbent.best is None
            return False
        self.bound_us = max(self.bound_us, min(outcome.bound_us, self.incumbent.time_us))
        return outcome.plan is not None and self._refine(outcome.plan)

    def _refine(self, plan: StagePlan) -> bool:
        """Replay a plan; add what makes it impossible."""
        self.plan = plan
        judged = self.incumbent.offer(expand(self.graph, self.order, plan))
        if judged is None:
            return False
        over = excesses(judged, self.incumbent.budget_bytes, plan.stages)
        if self.closed() or not over:
            return False
        return self._add_stages(over, STAGES_A_ROUND) or self._add_within(over)

    def _add_stages(self, over: list[RunExcess], most: int) -> bool:
        """Make the tightest first runs stages, of those that are ordered; tell whether any was."""
        allowed = self._chain & ~mask_of(self._cuts.stages)
        found = [e for e in over if e.first and allowed >> e.operation & 1]
        found.sort(key=lambda e: (-e.nbytes, e.operation))
        picked: list[int] = []
        rank = self.order.rank
        for excess in found:
            p = excess.operation
            if len(picked) < most and all(abs(rank[p] - rank[q]) > APART for q in picked):
                picked.append(p)
        stages = tuple(sorted([*self._cuts.stages, *picked], key=lambda p: self.order.rank[p]))
        self._cuts = replace(self._cuts, stages=stages)
        return bool(picked)

    def _add_within(self, over: list[RunExcess]) -> bool:
        known = self._cuts.within
        last = self._cuts.stages[-1] if self._cuts.stages else -1
        new = [
            (e.operation, e.stage)
            for e in sorted(over, key=lambda e: -e.nbytes)
            if e.stage not in (-1, last) and (e.operation, e.stage) not in known
        ]
        within = known | frozenset(new[:WITHIN_A_ROUND])
        self._cuts = replace(self._cuts, within=within)
        return bool(new)
