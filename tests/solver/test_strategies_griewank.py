"""Strategy `griewank`: its promises; revolve's closed form on uniform chains."""

from __future__ import annotations

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
    graphs,
    least_time_anyhow,
    plain_peak,
    steps,
    time_us,
)

from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published import griewank


@given(problems(), st.floats(0, 1.1))
@settings(max_examples=60, deadline=None)
def test_promises_on_training_problems(problem: Problem, share: float) -> None:
    found = check(griewank.search, problem, int(plain_peak(problem) * share))
    assert found.runs is not None or share < 1


@given(graphs(flagged=True), st.floats(0, 1.1))
@settings(max_examples=60, deadline=None)
def test_promises_on_bare_graphs(problem: Problem, share: float) -> None:
    check(griewank.search, problem, int(plain_peak(problem) * share))
    check(griewank.search, bare(problem), int(plain_peak(problem) * share))


@given(problems(max_forward=4, hard=False))
@settings(max_examples=20, deadline=None)
def test_never_below_the_optimum(problem: Problem) -> None:
    for budget in budgets(problem):
        found = time_us(problem, check(griewank.search, problem, budget))
        optimum = least_time(problem, budget)
        assert found is None or (optimum is not None and found >= optimum)


@given(steps(3, flagged=True))
@settings(max_examples=20, deadline=None)
def test_never_below_the_optimum_of_bare_graphs(problem: Problem) -> None:
    for budget in budgets(problem):
        found = time_us(problem, check(griewank.search, problem, budget))
        optimum = least_time_anyhow(bare(problem), budget)
        assert found is None or (optimum is not None and found >= optimum)


@pytest.mark.parametrize("length", [1, 2, 5, 8, 13, 18])
def test_uniform_chains_take_revolves_closed_form(length: int) -> None:
    """DESIGN.md, section 8: t(L + 1, S - 2) + L + 1, infeasible below 3 slots."""
    problem = chain(length, flagged=True)
    assert searched(griewank.search, problem, 2).runs is None
    for slots in range(3, length + 3):
        found = check(griewank.search, problem, slots)
        assert time_us(problem, found) == griewank.advances(length + 1, slots - 2) + length + 1


def test_the_chain_of_eight() -> None:
    problem = chain(8, flagged=True)
    times = [time_us(problem, searched(griewank.search, problem, slots)) for slots in range(3, 11)]
    assert times == [45, 26, 22, 21, 20, 19, 18, 17]


@given(st.integers(1, 40), st.integers(1, 12))
def test_advances_obey_their_recurrence(length: int, checkpoints: int) -> None:
    if length == 1:
        assert griewank.advances(length, checkpoints) == 0
    elif checkpoints == 1:
        assert griewank.advances(length, 1) == length * (length - 1) // 2
    else:
        assert griewank.advances(length, checkpoints) == min(
            m + griewank.advances(length - m, checkpoints - 1) + griewank.advances(m, checkpoints)
            for m in range(1, length)
        )


def test_a_gpt_at_half_its_peak() -> None:
    problem = gpt_like(4)
    found = check(griewank.search, problem, plain_peak(problem) // 2)
    once_us = sum(operation.time_us for operation in problem.operations)
    assert once_us < (time_us(problem, found) or 0) < 1.5 * once_us
