"""Strategies `chen-sqrt` and `chen-greedy`: their promises, their cuts on chains."""

from __future__ import annotations

from math import isqrt

import pytest
from brute_force import least_time
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems
from strategy_problems import (
    bare,
    budgets,
    chain,
    check,
    graph,
    graphs,
    least_time_anyhow,
    plain_peak,
    steps,
    time_us,
)

from remat_gen.solver.blocks.judged_runs import SearchFunction
from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published import chen
from remat_gen.solver.published.local_forwards import articulation_cuts

BOTH = pytest.mark.parametrize("search", [chen.sqrt_search, chen.greedy_search])


@BOTH
@given(problem=problems(), share=st.floats(0, 1.1))
@settings(max_examples=50, deadline=None)
def test_promises_on_training_problems(
    search: SearchFunction, problem: Problem, share: float
) -> None:
    found = check(search, problem, int(plain_peak(problem) * share))
    assert found.runs is not None or share < 1


@BOTH
@given(problem=graphs(flagged=True), share=st.floats(0, 1.1))
@settings(max_examples=50, deadline=None)
def test_promises_on_bare_graphs(search: SearchFunction, problem: Problem, share: float) -> None:
    check(search, problem, int(plain_peak(problem) * share))
    check(search, bare(problem), int(plain_peak(problem) * share))


@BOTH
@given(problem=problems(max_forward=4, hard=False))
@settings(max_examples=15, deadline=None)
def test_never_below_the_optimum(search: SearchFunction, problem: Problem) -> None:
    for budget in budgets(problem):
        found = time_us(problem, check(search, problem, budget))
        optimum = least_time(problem, budget)
        assert found is None or (optimum is not None and found >= optimum)


@BOTH
@given(problem=steps(3, flagged=True))
@settings(max_examples=15, deadline=None)
def test_never_below_the_optimum_of_bare_graphs(search: SearchFunction, problem: Problem) -> None:
    for budget in budgets(problem):
        found = time_us(problem, check(search, problem, budget))
        optimum = least_time_anyhow(bare(problem), budget)
        assert found is None or (optimum is not None and found >= optimum)


def test_articulation_points() -> None:
    """A row, a diamond, a row: nothing can be cut inside the diamond."""
    inputs = [[], [0], [1], [1], [2, 3], [4], [5]]
    backward = [[p, 6 + k] for k, p in enumerate(range(6, -1, -1))]
    problem = graph([*inputs, *backward], [1] * 14, forward=7)
    assert articulation_cuts(problem) == {1: {0}, 2: {1}, 5: {4}, 6: {5}}


@pytest.mark.parametrize("length", [16, 64, 144])
def test_square_root_of_the_memory_for_one_more_forward(length: int) -> None:
    problem = chain(length, flagged=True)
    assert plain_peak(problem) == length + 2
    budget = 2 * isqrt(length) + 3
    found = check(chen.sqrt_search, problem, budget)
    assert (time_us(problem, found) or 0) <= 3 * length + 1
    assert searched(chen.sqrt_search, problem, isqrt(length)).runs is None


def test_greedy_spares_the_large_values() -> None:
    """One value is as large as all others: chen-greedy ends a segment behind it, not before."""
    made = {0: 1, 1: 1, 2: 9, 3: 1, 4: 1}
    problem = chain(5, flagged=True)
    cuts = articulation_cuts(problem)
    assert chen.greedy_cuts(made, cuts, 3) == [3]
    assert chen.greedy_cuts(made, cuts, 1) == [2, 3, 5]


def test_greedy_fits_more_budgets_than_the_square_root() -> None:
    problem = gpt_like(3)
    peak = plain_peak(problem)
    once_us = sum(operation.time_us for operation in problem.operations)
    for share in (50, 70, 90):
        greedy = time_us(problem, searched(chen.greedy_search, problem, peak * share // 100))
        assert greedy is not None and once_us < greedy < 1.4 * once_us
