"""What is found is improved, whoever found it; chain programs are asked where a gap is wide."""

from __future__ import annotations

import pytest
from committed_problems import gpt

from remat_gen.solver.contest.auto import CLOSE, Auto
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.entrants import FrontEntrant
from remat_gen.solver.contest.registry import entrant_for
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.subject import Subject, subject_of
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.search_types import Effort, Found


@pytest.fixture(scope="module")
def subject() -> Subject:
    return subject_of(gpt(5))


def _by_rotor(subject: Subject, percent: int = 50) -> Contest:
    """Return the contest of a budget in which rotor alone has taken part."""
    contest = Contest(subject, subject.eager().peak_bytes * percent // 100)
    rotor = entrant_for("rotor", subject, Effort.NORMAL)
    rotor.enter(contest)
    assert contest.best is not None
    return contest


@pytest.mark.parametrize("percent", [60, 50])
def test_what_rotor_found_is_improved_under_its_name(subject: Subject, percent: int) -> None:
    contest = _by_rotor(subject, percent)
    before = contest.best
    Repairs(subject).enter(contest)
    assert before is not None and contest.best is not None
    assert contest.best.replay.time_us < before.replay.time_us
    assert contest.best.replay.peak_bytes <= contest.budget_bytes
    assert contest.best.strategy == before.strategy


def test_it_gives_the_same_again(subject: Subject) -> None:
    contests = [_by_rotor(subject), _by_rotor(subject)]
    for contest in contests:
        Repairs(subject).enter(contest)
    assert contests[0].best == contests[1].best


def test_what_is_near_the_bound_is_left(subject: Subject) -> None:
    contest = _by_rotor(subject)
    before = contest.best
    assert before is not None
    contest.bounds.append(Found(None, before.replay.time_us / 1.001))
    Repairs(subject, 2e-3).enter(contest)
    assert contest.best is before


def test_a_program_is_made_to_fit_or_is_none(subject: Subject) -> None:
    contest = _by_rotor(subject)
    assert contest.best is not None
    repairs, less = Repairs(subject), contest.best.replay.peak_bytes * 9 // 10 // subject.unit
    fitted = repairs.fitted(contest.best.program, less)
    assert fitted is not None
    assert subject.judge(fitted)[1].peak_bytes <= less * subject.unit
    assert repairs.fitted(contest.best.program, 1) is None
    assert repairs.fitted(contest.best.program, less, contest.best.replay.time_us / 2) is None


@pytest.mark.parametrize("effort", [Effort.QUICK, Effort.NORMAL])
@pytest.mark.parametrize("wide", [False, True])
def test_chain_programs_are_asked_where_the_gap_is_wide(
    subject: Subject, effort: Effort, wide: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    contest = _by_rotor(subject)
    monkeypatch.setattr(FrontEntrant, "enter", lambda front, _: asked.append(front.name))
    auto = entrant_for("auto", subject, effort)
    assert isinstance(auto, Auto) and contest.best is not None
    gap = CLOSE[effort] * (1.1 if wide else 0.9)
    contest.bounds.append(Found(None, contest.best.replay.time_us / (1 + gap)))
    auto._search(contest, (auto.rotor, auto.rockmate))
    assert asked == (["rotor", "rockmate"] if wide else [])


@pytest.mark.parametrize(
    ("effort", "is_searched"), [(Effort.NORMAL, False), (Effort.THOROUGH, True)]
)
def test_a_step_in_training_is_searched_for_long_at_thorough_only(
    subject: Subject, effort: Effort, is_searched: bool
) -> None:
    nodes = (Node(f"n{i}", 1.0, 1, i >= 30, tuple(range(i))[-1:]) for i in range(60))
    bare = subject_of(BareGraph(tuple(nodes)))
    for problem, expected in ((subject, is_searched), (bare, True)):
        auto = entrant_for("auto", problem, effort)
        assert isinstance(auto, Auto) and (auto.long is not None) == expected
