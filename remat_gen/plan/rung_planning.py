"""Search a schedule for each rung: within the budget at every step that the rung admits."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace

from remat_gen.ask.pin_patterns import pin
from remat_gen.ir.byte_text import size
from remat_gen.ir.costs import Costs
from remat_gen.ir.errors import InfeasibleBudgetError, UsageError
from remat_gen.ir.fingerprint import graph_sha256
from remat_gen.ir.graph import Graph
from remat_gen.ir.plan import PlannedRung
from remat_gen.ir.rung import Rung
from remat_gen.plan.costing import costs_of
from remat_gen.plan.emission import predicted_of, solver_of
from remat_gen.plan.measured_step import MeasuredStep
from remat_gen.plan.plan_names import blocks_of, committed_runs, planned_schedule
from remat_gen.plan.planning import Planned, Search, make_plan
from remat_gen.problem.rung_limits import RungLimits
from remat_gen.problem.rung_problems import (
    recorded_bytes,
    rung_graph,
    rung_problem,
    with_recorded,
)
from remat_gen.problem.smaller_problems import elsewhere_of
from remat_gen.problem.step_problem import problem_of
from remat_gen.solver.all_sizes import Elsewhere
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.solve import Solver
from remat_gen.terminal.progress import Stages

WORTH = 0.003  # of a step's time: what a program more to read is chosen for


def plan_rungs(measured: MeasuredStep, whole: Planned, stages: Stages) -> tuple[PlannedRung, ...]:
    """Search what the request asks for; `whole` is planned for every step.

    Of rungs that are chosen those are left out that gain nothing to speak of.

    Raises:
        InfeasibleBudgetError: nothing fits on a rung.
        UsageError: a rung is for no more memory than the budget.
    """
    for rung in measured.request.rungs:
        if 0 < rung.free_bytes <= whole.budget_bytes:
            raise UsageError(f"--rungs {rung}: the budget is {size(whole.budget_bytes)} already")
    planner = _Planner(measured, whole, stages)
    if not measured.request.auto_rungs:
        return tuple(planner.plan(rung)[1] for rung in measured.request.rungs)
    graph, budget = measured.traced.graph, whole.budget_bytes
    with stages("solve") as step:
        limits = RungLimits(graph, measured.costs, whole.problem, whole.schedule, budget, step)
        chosen = limits.rungs()
        stages.progress.pardon()
    kept: list[tuple[Planned, PlannedRung]] = []
    for rung in reversed(chosen):
        above = kept[0][0] if kept else whole
        with contextlib.suppress(InfeasibleBudgetError):  # by what it records, in a tight budget
            planned, written = planner.plan(rung)
            without = replay(planned.problem, above.schedule).time_us
            if 1 - planned.replay.time_us / without >= WORTH:
                kept.insert(0, (planned, written))
    return tuple(written for _, written in kept)


@dataclass(frozen=True, slots=True)
class _Planner:
    measured: MeasuredStep
    whole: Planned
    stages: Stages

    def plan(self, rung: Rung) -> tuple[Planned, PlannedRung]:
        """Return what is planned on the graph of a rung's longest steps, and how it is written."""
        try:
            return self._plan(rung)
        except InfeasibleBudgetError as error:
            told = f"--rungs {rung}: {error}"
            found = (error.smallest_bytes, error.strategy, error.operation)
            raise InfeasibleBudgetError(told, *found) from error

    def _plan(self, rung: Rung) -> tuple[Planned, PlannedRung]:
        there = rung_graph(self.measured.traced.graph, rung)
        old = self._old(rung)
        costs = self._costs(there, old)
        problem = rung_problem(there, costs, self.whole.problem)
        request = self.measured.request
        with self.stages("solve") as step:
            kept = None if request.fresh or old is None else committed_runs(old.schedule)
            search = Search(
                request.strategy.value,
                request.effort,
                step,
                self.stages.progress.news,
                kept,
                elsewhere=self._elsewhere(there, costs, problem),
            )
            pinned = pin(problem, there, request.pins)
            budget = rung.free_bytes or self.whole.budget_bytes
            planned = make_plan(pinned, there, budget, search)
            self.stages.progress.pardon()
        found = predicted_of(planned, costs)
        eager = Solver(problem_of(there, costs), "none").plain  # it records nothing
        written = PlannedRung(
            limits=rung.limits,
            free_bytes=rung.free_bytes,
            costs=dict(costs.operations),
            blocks=blocks_of(there, planned.problem, planned.schedule),
            schedule=planned_schedule(planned.problem, planned.schedule),
            solver=solver_of(planned.solution),
            predicted=replace(found, eager_peak_bytes=eager.peak_bytes),
        )
        return planned, written

    def _elsewhere(self, there: Graph, costs: Costs, here: Problem) -> tuple[Elsewhere, ...]:
        recorded = recorded_bytes(there, costs.alignment_bytes)
        found = elsewhere_of(there, costs, here)
        return tuple(replace(e, problem=with_recorded(e.problem, recorded)) for e in found)

    def _old(self, rung: Rung) -> PlannedRung | None:
        """Return what the plan that stands there already has for a rung of the same graph."""
        request, plan = self.measured.request, self.measured.old
        if plan is None or plan.asked.strategy != request.strategy.value:
            return None
        if plan.graph_sha256 != graph_sha256(self.measured.traced.graph):
            return None
        return next((old for old in plan.rungs if old.rung == rung), None)

    def _costs(self, there: Graph, old: PlannedRung | None) -> Costs:
        """Return costs at a rung's lengths: the old plan's where the whole range's are, too."""
        costs, request = self.measured.costs, self.measured.request
        if old and self.measured.costs_reused and old.costs.keys() == costs.operations.keys():
            return replace(costs, operations=old.costs)
        # the example's numbers may be of rows that are not there
        traced = replace(self.measured.traced, graph=there, examples={})
        with self.stages("profile") as step:
            return costs_of(traced, self.measured.loaded, request.target, None, step)[0]
