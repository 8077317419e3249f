"""Plans of a few stages, repaired: schedules within the budget, bounds that hold."""

from __future__ import annotations

from typing import Any

import pytest
from solver_problems import gpt_like

from remat_gen.solver.contest import auto, entrants
from remat_gen.solver.contest.auto import NEAR
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.repairs import Repairs, StagesEntrant
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.solve import Solver
from remat_gen.solver.stages.exact_search import search


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(gpt_like(2))


@pytest.mark.parametrize("share", [90, 70, 60])
def test_a_repaired_plan_fits_and_its_bound_holds(subject: Subject, share: int) -> None:
    plain = subject.judge(subject.plain())[1]
    contest = Contest(subject, plain.peak_bytes * share // 100)
    StagesEntrant(subject, Repairs(subject), Effort.QUICK).enter(contest)
    assert contest.best is not None
    assert contest.best.replay.peak_bytes <= contest.budget_bytes < plain.peak_bytes
    [bound] = contest.bounds
    known = search(subject.whole, contest.budget_units, Effort.QUICK)
    assert known.runs is not None
    best_us = subject.judge(subject.program(known.runs))[1].time_us
    assert plain.time_us < bound.lower_bound_us <= best_us * (1 + 1e-9)  # sums in another order
    assert contest.best.replay.time_us >= bound.lower_bound_us * (1 - 1e-9)


def test_same_problem_same_schedule(subject: Subject) -> None:
    budget = subject.judge(subject.plain())[1].peak_bytes * 7 // 10
    found = []
    for _ in range(2):
        contest = Contest(subject, budget)
        StagesEntrant(subject, Repairs(subject), Effort.QUICK).enter(contest)
        assert contest.best is not None
        found.append(contest.best.program)
    assert found[0] == found[1]


def test_nothing_below_what_one_operation_needs(subject: Subject) -> None:
    contest = Contest(subject, subject.unit)
    StagesEntrant(subject, Repairs(subject), Effort.QUICK).enter(contest)
    assert contest.best is None
    assert not contest.ruled_out


def test_a_deep_model_is_planned_by_stages_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is near their bound is only bounded beside all other schedules: the same, sooner."""
    problem = gpt_like(2)
    solver = Solver(problem, "auto", effort=Effort.NORMAL)
    budget_bytes = solver.plain.peak_bytes * 7 // 10
    exact_first = solver.solve(budget_bytes)
    asked: list[bool] = []

    def watched(*arguments: Any, in_blocks: bool, **options: Any) -> Found:
        asked.append(in_blocks)
        return search(*arguments, in_blocks=in_blocks, **options)

    monkeypatch.setattr(auto, "DEEP", 0)
    monkeypatch.setattr(entrants, "search", watched)
    stages_first = Solver(problem, "auto", effort=Effort.NORMAL).solve(budget_bytes)
    assert asked[0] is False
    assert stages_first.replay.peak_bytes <= budget_bytes
    assert stages_first.replay.time_us <= exact_first.replay.time_us * (1 + NEAR[Effort.NORMAL])
    assert stages_first.lower_bound_us <= exact_first.replay.time_us * (1 + 1e-9)
    assert stages_first.gap <= 2 * NEAR[Effort.NORMAL]
