"""Plans of a few stages, repaired: schedules within the budget, bounds that hold."""

from __future__ import annotations

import pytest
from solver_problems import gpt_like

from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.stages_entrant import StagesEntrant
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.law.search_types import Effort
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
    assert plain.time_us < bound.time_us <= best_us * (1 + 1e-9)  # sums in another order
    assert contest.best.replay.time_us >= bound.time_us * (1 - 1e-9)


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
