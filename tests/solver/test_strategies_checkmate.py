"""Strategy `checkmate`: its promises, its optimum against all schedules in stages."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import GptShape, gpt_like, problems
from strategy_problems import (
    budgets,
    chain,
    check,
    graph,
    graphs,
    judged,
    least_time_anyhow,
    least_time_in_stages,
    plain_peak,
    steps,
    time_us,
)

from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Found
from remat_gen.solver.published import checkmate

NINE = graph(  # DESIGN.md, section 8: names x t a s b v z0 z y
    [[], [0], [1], [0], [3], [2, 4], [5], [6], [7, 2, 4]], [1, 3, 1, 2, 1, 1, 4, 1, 1]
)


def _equals_the_optimum(problem: Problem, budget: int) -> Found:
    found = check(checkmate.search, problem, budget)
    assert found.complete
    assert time_us(problem, found) == least_time_in_stages(problem, budget)
    if found.runs is not None:
        assert found.lower_bound_us == pytest.approx(time_us(problem, found))
    return found


@given(steps())
@settings(max_examples=30, deadline=None)
def test_optimal_in_stages_on_bare_training_steps(problem: Problem) -> None:
    for budget in budgets(problem):
        _equals_the_optimum(problem, budget)


@given(graphs(5), st.floats(0.3, 1))
@settings(max_examples=40, deadline=None)
def test_never_below_the_optimum_of_any_graph(problem: Problem, share: float) -> None:
    budget = int(plain_peak(problem) * share)
    found = time_us(problem, _equals_the_optimum(problem, budget))
    optimum = least_time_anyhow(problem, budget)
    assert found is None or (optimum is not None and found >= optimum)


@given(problems(max_forward=4, hard=False))
@settings(max_examples=40, deadline=None)
def test_optimal_in_stages_on_training_problems(problem: Problem) -> None:
    for budget in budgets(problem):
        _equals_the_optimum(problem, budget)


@given(problems(max_forward=5), st.floats(0.3, 1.1))
@settings(max_examples=80, deadline=None)
def test_rows_count_as_the_replay_does(problem: Problem, share: float) -> None:
    """Never too little, else the first plan would not fit; nor too much at a plan's own peak."""
    found = check(checkmate.search, problem, int(plain_peak(problem) * share))
    assert found.runs is not None or share < 1
    if found.runs is not None:
        assert found.complete
        peak = judged(problem, found.runs).peak_bytes
        assert time_us(problem, searched(checkmate.search, problem, peak)) == time_us(
            problem, found
        )


@pytest.mark.parametrize(("slots", "least"), [(3, 45), (4, 26), (5, 22), (6, 21), (7, 20)])
def test_uniform_chain_of_eight(slots: int, least: int) -> None:
    problem = chain(8, flagged=False)
    assert time_us(problem, check(checkmate.search, problem, slots)) == least


def test_a_restriction_of_its_class() -> None:
    """Two large values of which one would be gone before the other is made, in another order."""
    problem = graph([[], [0], [0], [1], [2], [3, 4]], [1, 5, 5, 1, 1, 1])
    assert least_time_anyhow(problem, 7) == 6
    found = _equals_the_optimum(problem, 7)
    assert (time_us(problem, found), found.bound_for) == (8, checkmate.CLASS)


def test_reruns_between_two_first_runs_stand_in_any_order() -> None:
    """All schedules have an optimum of 15 at budget 5; in the paper's stages there is none."""
    assert least_time_anyhow(NINE, 5) == 15
    assert time_us(NINE, _equals_the_optimum(NINE, 5)) == 15


def test_one_layer_of_a_gpt() -> None:
    small = GptShape(batch=2, tokens=64, width=64, heads=4, vocabulary=100)
    problem = gpt_like(1, small)
    found = check(checkmate.search, problem, plain_peak(problem) * 85 // 100)
    assert found.runs is not None and found.complete
