"""Bound and solve by the stage program, with stages added where its plans exceed the budget."""

from __future__ import annotations

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, Judged
from remat_gen.solver.stages.first_run_order import FirstRuns
from remat_gen.solver.stages.plan_runs import StageChoice, Within, expand, tight_turns, tight_within
from remat_gen.solver.stages.stage_program import Answers, solve_stages
from remat_gen.solver.states.bit_graph import BitGraph

TOLERANCE = 1e-6  # of the time of all operations: what HiGHS answers for
STAGES_A_ROUND = 3
WITHIN_A_ROUND = 5
APART = 3  # operations between two stages added at once: neighbours are tight together


def refined(
    graph: BitGraph,
    order: FirstRuns,
    incumbent: IncumbentSchedule,
    plain: Judged,
    work: int,
    answers: Answers | None = None,
) -> float:
    """Offer what plans are as schedules; return a bound of the time (us) of all in the order.

    The first stage is where the plain schedule is tightest. A plan is put in order and replayed:
    where it exceeds the budget, the tight operations become stages, or, where none is left to add,
    rows within an interval. The bound is infinite where there is no schedule. `work` limits
    HiGHS's on all programs, as `StageSolution` counts it; `answers` are those of earlier ones.
    """
    budget_bytes, tolerance = incumbent.budget_bytes, graph.total_us * TOLERANCE
    choice = StageChoice.of(order, tight_turns(plain, budget_bytes))
    within: frozenset[Within] = frozenset()
    bound_us, hard = 0.0, False
    while work > 0 and incumbent.time_us > bound_us + tolerance:
        stages = choice.stages
        outcome = solve_stages(
            graph, order, budget_bytes, stages, work, answers, within=within, hard=hard
        )
        if outcome.infeasible:
            return incumbent.time_us
        work -= outcome.work
        hard = outcome.branched  # not at an end at its root: nor will those with more stages be
        bound_us = max(bound_us, min(outcome.bound_us, incumbent.time_us))
        plan = outcome.plan
        judged = None if plan is None else incumbent.offer(expand(graph, plan))
        if judged is None:
            break
        if not choice.add(tight_turns(judged, budget_bytes), STAGES_A_ROUND, APART):
            tight = tight_within(judged, budget_bytes, stages)
            new = [run for run in tight if run not in within][:WITHIN_A_ROUND]
            if not new:
                break
            within |= frozenset(new)
    return bound_us
