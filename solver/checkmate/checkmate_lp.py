"""Strategy `checkmate-lp`: the linear relaxation of Checkmate's program, rounded in two phases.

Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization",
MLSys 2020 (arXiv:1910.02653), section 5: relax the program, round S (what is carried into each
stage), and run again the least that this S needs; rounding may exceed the budget, so the relaxation
gets less than the budget. As in the paper's deterministic variant S is rounded at thresholds, here
0.1 … 0.9, and the quickest result within the real budget is taken.

The relaxation is solved by HiGHS' interior point method and left inside the optimal face: a vertex
of it would be less evenly spread. scipy has no name for HiGHS' option `run_crossover`, but hands
unknown options on, with a warning that is silenced here.
"""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
from scipy.optimize import OptimizeWarning, linprog

from remat_gen.solver.checkmate.checkmate import CLASS, scaled_model
from remat_gen.solver.checkmate.checkmate_model import CheckmatePlan
from remat_gen.solver.checkmate.checkmate_stages import CheckmateStage, CheckmateStages, stages_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.published.candidate_judge import Judge
from remat_gen.solver.published.size_limit import SizeLimit

SIZES = {
    Effort.QUICK: SizeLimit(bare=60, training=120),
    Effort.NORMAL: SizeLimit(bare=90, training=250),
    Effort.THOROUGH: SizeLimit(bare=200, training=500),
}
THRESHOLDS = tuple(tenths / 10 for tenths in range(1, 10))
HEADROOMS = (0.1, 0.0)  # shares of the budget held back from the relaxation: the paper's, and none


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return the quickest rounded schedule within the budget.

    Raises:
        TooLargeError: the graph has more operations than the effort allows.
    """
    judge = Judge(problem, budget_bytes, on_better)
    judge.offer(range(len(problem.operations)))
    if judge.best:
        return replace(judge.found(), complete=True)
    SIZES[effort].check("checkmate-lp", problem)
    stages = stages_of(problem, judge.chain)
    for headroom in HEADROOMS:
        plan = _relaxed(stages, int(budget_bytes * (1 - headroom)))
        if plan is not None:
            judge.offer_all(rounded(stages, plan, threshold) for threshold in THRESHOLDS)
    return replace(judge.found(), bound_for=CLASS)


def rounded(stages: CheckmateStages, plan: CheckmatePlan, threshold: float) -> list[int]:
    """Return the runs in which S is rounded at a threshold and R is the least that S needs."""
    runs = list(range(stages.problem.forward_count))
    there: set[int] | None = None
    for number, stage in enumerate(stages.stages):
        if there is None:  # whatever forward made
            there = _wanted(stages, plan, stage, threshold)
        following = stages.stages[number + 1 : number + 2]
        wanted = {v for s in following for v in _wanted(stages, plan, s, threshold)}
        again = _least_reruns(stages, stage, there, wanted)
        runs += [*again, stage.last]
        there = wanted
    return runs


def _relaxed(stages: CheckmateStages, budget_bytes: int) -> CheckmatePlan | None:
    """Return the relaxation's solution, None where it has none."""
    scaled, _ = scaled_model(stages, budget_bytes)
    if not scaled.feasible:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OptimizeWarning)
        result = linprog(
            np.array(scaled.model.costs),
            A_ub=scaled.model.matrix(),
            b_ub=np.array(scaled.model.limits),
            bounds=(0, 1),
            method="highs-ipm",
            options={"run_crossover": "off"},
        )
    return None if result.x is None else scaled.plan(result.x)


def _wanted(
    stages: CheckmateStages, plan: CheckmatePlan, stage: CheckmateStage, threshold: float
) -> set[int]:
    """Return what is carried into a stage: also all that cannot be made again."""
    operations = stages.problem.operations
    return {
        v
        for v in stage.carried
        if plan.carried[stage.last, v] >= threshold or not operations[stages.producer[v]].rerunnable
    }


def _least_reruns(
    stages: CheckmateStages, stage: CheckmateStage, there: set[int], wanted: set[int]
) -> list[int]:
    """Return the re-runs for the stage's own operation and for what is carried on."""
    operations = stages.problem.operations
    missing = set(stages.decided(operations[stage.last].inputs)) | wanted
    missing -= there | set(operations[stage.last].outputs)
    again = []
    for p in reversed(stage.again):
        if not missing.isdisjoint(operations[p].outputs):
            again.append(p)
            missing.update(u for u in stages.decided(operations[p].inputs) if u not in there)
    return again[::-1]
