"""Strategy `checkmate-lp`: its promises, its rounding, its distance to the optimum."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems
from strategy_problems import (
    budgets,
    chain,
    check,
    graphs,
    judged,
    least_time_in_stages,
    plain_peak,
    steps,
    time_us,
)

from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.published import checkmate
from remat_gen.solver.stages.first_run_order import first_runs
from remat_gen.solver.states.bit_graph import BitGraph


def _not_below_the_optimum(problem: Problem, budget: int) -> float | None:
    found = time_us(problem, check(checkmate.lp_search, problem, budget))
    optimum = least_time_in_stages(problem, budget)
    assert found is None or (optimum is not None and found >= optimum)
    return found


@given(steps(3))
@settings(max_examples=15, deadline=None)
def test_not_below_the_optimum_on_bare_training_steps(problem: Problem) -> None:
    times = [_not_below_the_optimum(problem, budget) for budget in budgets(problem)]
    assert times[-1] == sum(operation.time_us for operation in problem.operations)


@given(graphs(6), st.floats(0.3, 1))
@settings(max_examples=30, deadline=None)
def test_not_below_the_optimum_of_any_graph(problem: Problem, share: float) -> None:
    _not_below_the_optimum(problem, int(plain_peak(problem) * share))


@given(problems(max_forward=6), st.floats(0.3, 1.1))
@settings(max_examples=60, deadline=None)
def test_promises_on_hard_training_problems(problem: Problem, share: float) -> None:
    found = check(checkmate.lp_search, problem, int(plain_peak(problem) * share))
    assert found.runs is not None or share < 1


@given(problems(max_forward=6), st.sampled_from((0.0, 0.3, 0.7, 1.0)))
@settings(max_examples=60, deadline=None)
def test_any_rounding_can_run(problem: Problem, carried: float) -> None:
    """Nothing carried: all runs again; everything carried: nothing does."""
    graph = BitGraph(checkmate.in_given_order(problem))
    stages = tuple(range(problem.forward_count, graph.count))
    shares = [[carried] * len(problem.values)] * len(stages)
    rounded = checkmate.rounded(graph, first_runs(graph), stages, shares)
    for threshold, runs in zip(checkmate.THRESHOLDS, rounded, strict=True):
        figures = judged(problem, runs)
        assert not figures.reruns or carried < threshold


def test_rounding_is_near_the_optimum_of_a_chain() -> None:
    problem = chain(8, flagged=False)
    for slots, least in zip(range(3, 11), (45, 26, 22, 21, 20, 19, 18, 17), strict=True):
        found = time_us(problem, check(checkmate.lp_search, problem, slots))
        assert found is not None and least <= found <= 1.5 * least


def test_a_gpt_layer_at_80_percent() -> None:
    problem = gpt_like(1)
    found = check(checkmate.lp_search, problem, plain_peak(problem) * 80 // 100)
    once_us = sum(operation.time_us for operation in problem.operations)
    assert found.runs is not None
    assert once_us < (time_us(problem, found) or 0) < 1.3 * once_us


def test_of_a_large_graph_some_operations_end_stages() -> None:
    problem = chain(100, flagged=False)
    found = check(checkmate.lp_search, problem, 70)
    assert 201 < (time_us(problem, found) or 0) < 400
    assert searched(checkmate.lp_search, problem, 2, Effort.QUICK).runs is None
