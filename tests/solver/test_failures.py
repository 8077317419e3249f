"""What a search that fails, or sizes beyond what a library counts, may not cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from solver_problems import unet_like, uniform_chain

from remat_gen.solver.contest.contest import Contest, SearchFailedWarning
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solver
from remat_gen.solver.stages import exact_search as exact_search
from remat_gen.solver.stages.exact_search import LIMITS, Limits


def _huge(problem: Problem) -> Problem:
    """Return a problem whose bytes have no common unit and exceed 2³¹ in each block."""
    values = tuple(replace(value, nbytes=value.nbytes * 1000 + 1) for value in problem.values)
    return replace(problem, values=values)


@pytest.mark.parametrize("problem", [unet_like(3), uniform_chain(8)])
def test_blocks_of_more_than_two_billion_units(problem: Problem) -> None:
    small, large = Solver(problem, "rockmate"), Solver(_huge(problem), "rockmate")
    for share in (60, 80):
        found = large.solve(large.plain.peak_bytes * share // 100)
        same = small.solve(small.plain.peak_bytes * share // 100)
        assert found.replay.time_us == pytest.approx(same.replay.time_us, rel=0.02)


class _Defect(Exception):
    pass


def _raise(*_arguments: object, **_options: object) -> None:
    raise _Defect("a defect")


def _open_problem(monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Return a problem of which little work proves nothing."""
    for effort in Effort:
        monkeypatch.setitem(LIMITS, effort, Limits(1, 1, 1))
    monkeypatch.setattr(exact_search, "PROGRAMS", 1)
    return unet_like(3)


def test_a_failure_costs_no_schedule_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _open_problem(monkeypatch)
    monkeypatch.setattr("remat_gen.solver.contest.entrants.search", _raise)
    solver = Solver(problem, "auto")
    with pytest.warns(SearchFailedWarning, match="exact: .*a defect"):
        found = solver.solve(solver.plain.peak_bytes * 80 // 100)
    assert found.replay.peak_bytes <= solver.plain.peak_bytes * 80 // 100
    assert any("exact failed" in note and "a defect" in note for note in found.notes)


@pytest.mark.filterwarnings("default::remat_gen.solver.contest.contest.SearchFailedWarning")
def test_a_failure_that_leaves_nothing_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _open_problem(monkeypatch)
    monkeypatch.setattr(Contest, "offer", lambda *_: None)
    monkeypatch.setattr("remat_gen.solver.contest.entrants.search", _raise)
    with pytest.raises(_Defect):
        Solver(problem, "auto").solve(10**6)


@pytest.mark.filterwarnings("error::remat_gen.solver.contest.contest.SearchFailedWarning")
def test_tests_see_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = _open_problem(monkeypatch)
    monkeypatch.setattr("remat_gen.solver.contest.entrants.search", _raise)
    solver = Solver(problem, "auto")
    with pytest.raises(SearchFailedWarning):
        solver.solve(solver.plain.peak_bytes * 80 // 100)
