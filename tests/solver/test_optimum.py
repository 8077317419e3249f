"""The strategies against the true optimum of tiny problems."""

from __future__ import annotations

from brute_force import least_time
from hypothesis import given, settings
from solver_problems import problems, uniform_chain

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.solve import InfeasibleError, Solver

TINY = problems(max_forward=4, hard=False)


def _ratio(problem: Problem, solver: Solver, budget: int) -> float | None:
    """Return time over the least time; None where the strategy has no schedule."""
    optimum = least_time(problem, budget)
    try:
        found = solver.solve(budget)
    except InfeasibleError:
        return None
    assert optimum is not None, "a schedule within the budget where there is none"
    assert found.replay.time_us >= optimum
    return found.replay.time_us / optimum


@given(TINY)
@settings(max_examples=60, deadline=None)
def test_never_better_than_the_optimum(problem: Problem) -> None:
    for strategy in ("rockmate", "per-layer"):
        solver = Solver(problem, strategy)
        plain = solver.plain.peak_bytes
        for budget in range(plain // 2, plain + 1, max(1, plain // 8)):
            _ratio(problem, solver, budget)


def test_uniform_chain_is_near_the_optimum() -> None:
    problem = uniform_chain(5)
    solver = Solver(problem)
    plain = solver.plain.peak_bytes
    ratios = [_ratio(problem, solver, budget) for budget in range(4, plain + 1)]
    assert all(ratio is None or ratio < 1.25 for ratio in ratios)
    assert ratios[-1] == 1.0
    assert sum(ratio == 1.0 for ratio in ratios) >= 2


def test_oracle_knows_the_chain_of_two() -> None:
    """f0 f1 b1 b0: at the plain peak 4 runs; with f0 dropped and made again 5."""
    problem = uniform_chain(2)
    plain = Solver(problem, "none").smallest_budget().nbytes
    assert least_time(problem, plain) == 4.0
    assert least_time(problem, plain - 1) in (5.0, None)
    assert least_time(problem, 1) is None
