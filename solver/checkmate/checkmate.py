"""Strategy `checkmate`: the least time over stages, by an exact integer program.

Source: Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion
Stoica and Joseph E. Gonzalez, "Checkmate: Breaking the Memory Wall with Optimal Tensor
Rematerialization", MLSys 2020 (arXiv:1910.02653), with frontier-advancing stages
(`checkmate_stages`) and rows that count memory tighter than the paper's (`checkmate_model`), solved
by HiGHS through scipy. Its work is limited by nodes of the search tree, the fewer the larger they
are, never by time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce
from math import gcd, inf

import numpy as np
from scipy.optimize import Bounds, LinearConstraint

from remat_gen.solver.checkmate.checkmate_model import CheckmatePlan, StageModel, stage_model
from remat_gen.solver.checkmate.checkmate_stages import CheckmateStages, stages_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.published.candidate_judge import Judge
from remat_gen.solver.published.size_limit import SizeLimit
from remat_gen.solver.stages.milp import quiet_milp

SIZES = {
    Effort.QUICK: SizeLimit(bare=80, training=120),
    Effort.NORMAL: SizeLimit(bare=110, training=180),
    Effort.THOROUGH: SizeLimit(bare=200, training=400),
}
WORK = {Effort.QUICK: 2_000_000, Effort.NORMAL: 10_000_000, Effort.THOROUGH: 10_000_000_000}
"""Nodes of the search tree times the model's terms, at most."""

CLASS = "schedules in stages of the given order"
SCALED_BUDGET = 1000.0  # rows in this unit: HiGHS' tolerances are absolute
ATTEMPTS = 4  # with less room each, where the tolerances let a plan exceed the budget


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return the quickest schedule in stages within the budget, and HiGHS' bound on those.

    Raises:
        TooLargeError: the graph has more operations than the effort allows.
    """
    judge = Judge(problem, budget_bytes, on_better)
    judge.offer(range(len(problem.operations)))
    if judge.best:
        return replace(judge.found(), complete=True)
    SIZES[effort].check("checkmate", problem)
    stages = stages_of(problem, judge.chain)
    first, room = None, budget_bytes
    for _ in range(ATTEMPTS):
        answer = _solve(stages, room, WORK[effort])
        first = first or answer
        if answer.plan is None:
            break
        over = judge.offer(runs_of(stages, answer.plan)).replay.peak_bytes - budget_bytes
        if over <= 0:
            break
        room -= over
    assert first is not None
    return _found(judge, first, within_first=room == budget_bytes)


def runs_of(stages: CheckmateStages, plan: CheckmatePlan) -> list[int]:
    """Return forward, then each stage's re-runs and its own operation."""
    runs = list(range(stages.problem.forward_count))
    for stage in stages.stages:
        runs += [p for p in stage.again if plan.reruns[stage.last, p] > 0.5]
        runs.append(stage.last)
    return runs


def scaled_model(stages: CheckmateStages, budget_bytes: int) -> tuple[StageModel, float]:
    """Return the model of a budget in units that suit HiGHS, and the unit of time."""
    unit_us = _unit_us([operation.time_us for operation in stages.problem.operations])
    unit_bytes = max(budget_bytes, 1) / SCALED_BUDGET
    return stage_model(stages, budget_bytes, unit_bytes=unit_bytes, unit_us=unit_us), unit_us


@dataclass(frozen=True, slots=True)
class _Answer:
    """What HiGHS said; the bound is on the time of re-runs, infinite where there is no plan."""

    plan: CheckmatePlan | None
    bound_us: float
    complete: bool


def _solve(stages: CheckmateStages, budget_bytes: int, work: int) -> _Answer:
    scaled, unit_us = scaled_model(stages, budget_bytes)
    if not scaled.feasible:
        return _Answer(None, inf, True)
    model = scaled.model
    if not model.limits:
        return _Answer(scaled.plan(np.zeros(len(model.costs))), 0.0, True)
    result = quiet_milp(
        np.array(model.costs),
        integrality=np.array(model.whole, dtype=int),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(model.matrix(), -np.inf, np.array(model.limits)),
        options={"mip_rel_gap": 0.0, "node_limit": 1 + work // model.term_count},
    )
    if result.status == 2:
        return _Answer(None, inf, True)
    bound = result.mip_dual_bound if result.mip_dual_bound is not None else 0.0
    plan = None if result.x is None else scaled.plan(result.x)
    return _Answer(plan, max(0.0, float(bound)) * unit_us, result.status == 0)


def _found(judge: Judge, answer: _Answer, *, within_first: bool) -> Found:
    """Return the best schedule; it is the optimum of its class if the first plan was and fits."""
    found = judge.found()
    if judge.best is None:
        return replace(found, bound_for=CLASS, complete=answer.plan is None and answer.complete)
    bound = min(found.lower_bound_us + answer.bound_us, judge.best.replay.time_us)
    return replace(
        found, lower_bound_us=bound, bound_for=CLASS, complete=answer.complete and within_first
    )


def _unit_us(times: list[float]) -> float:
    """Return the greatest unit in which all times are whole, or one that keeps them small.

    With whole costs HiGHS may round its bounds up.
    """
    for parts in (1, 10, 100, 1000):
        counts = [round(time_us * parts) for time_us in times]
        if all(abs(n / parts - t) <= 1e-9 * t for n, t in zip(counts, times, strict=True)):
            return max(1, reduce(gcd, counts, 0)) / parts
    return max(max(times), 1.0) / 1000
