"""Layers are planned alike where that costs next to nothing, and never above the budget."""

from __future__ import annotations

import pytest
from committed_problems import gpt, written

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solution, Solver
from remat_gen.solver.stable.layer_transfer import Transfer
from remat_gen.solver.stable.layers_alike import TOLERANCE


def solved(problem: Problem, percent: int, effort: Effort, *, alike: bool) -> Solution:
    solver = Solver(problem, "auto", effort=effort, alike=alike)
    return solver.solve(solver.plain.peak_bytes * percent // 100)


def kinds(problem: Problem, solution: Solution) -> int:
    """Return how many kinds of layers a schedule has."""
    transfer = Transfer(problem, written(problem, solution.schedule), ())
    return len({tuple(filter(None, transfer.reruns_in(layer))) for layer in transfer.new_kinds})


@pytest.mark.parametrize("percent", [80, 70, 60, 50, 40])
@pytest.mark.parametrize("layers", [3, 5, 8])
def test_layers_alike_fit_and_are_about_as_quick(layers: int, percent: int) -> None:
    problem = gpt(layers)
    best = solved(problem, percent, Effort.QUICK, alike=False)
    found = solved(problem, percent, Effort.QUICK, alike=True)
    assert found.replay == replay(problem, found.schedule)
    assert found.replay.peak_bytes <= best.eager.peak_bytes * percent // 100
    assert found.replay.time_us <= best.replay.time_us * (1 + TOLERANCE[Effort.QUICK])
    assert kinds(problem, found) <= kinds(problem, best)
    changed = found.schedule != best.schedule
    assert (found.slower is not None) == changed
    assert kinds(problem, found) < kinds(problem, best) or not changed
    assert found.lower_bound_us == best.lower_bound_us


def test_some_schedules_have_fewer_kinds_of_layers() -> None:
    problem = gpt(8)
    shares = (80, 70, 60, 50, 40)
    pairs = [
        [kinds(problem, solved(problem, s, Effort.QUICK, alike=a)) for s in shares]
        for a in (False, True)
    ]
    assert sum(pairs[1]) < sum(pairs[0])


def test_planned_again_it_is_the_same_by_the_same_name() -> None:
    problem = gpt(8)
    changed = 0
    for percent in (80, 70, 60, 50, 40):
        first = solved(problem, percent, Effort.QUICK, alike=True)
        committed = written(problem, first.schedule)
        solver = Solver(problem, "auto", effort=Effort.QUICK, committed=committed, alike=True)
        again = solver.solve(solver.plain.peak_bytes * percent // 100)
        assert (again.strategy, again.schedule) == (first.strategy, first.schedule)
        assert again.slower == first.slower
        changed += first.slower is not None
    assert changed


def test_a_thorough_search_keeps_the_best() -> None:
    problem = gpt(4)
    best, found = (solved(problem, 60, Effort.THOROUGH, alike=alike) for alike in (False, True))
    assert found.schedule == best.schedule
    assert found.slower is None


def test_a_strategy_of_its_own_stays_what_it_is() -> None:
    problem = gpt(5)
    budget = Solver(problem, "rotor").plain.peak_bytes * 6 // 10
    plain, alike = (Solver(problem, "rotor", alike=a).solve(budget) for a in (False, True))
    assert plain.schedule == alike.schedule
