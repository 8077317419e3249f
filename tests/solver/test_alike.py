"""Layers are planned alike where that costs next to nothing, and never above the budget."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from itertools import chain, pairwise
from typing import Any

import pytest
from committed_problems import gpt, written

from remat_gen.solver.contest.auto import Auto
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.repairs import Repairs
from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.solve import Solution, Solver
from remat_gen.solver.stable import warm_start
from remat_gen.solver.stable.layer_transfer import Transfer
from remat_gen.solver.stable.layers_alike import TOLERANCE, LayersAlike


@cache  # several tests look at the same ones
def solved(problem: Problem, percent: int, effort: Effort, *, alike: bool) -> Solution:
    solver = Solver(problem, "auto", effort=effort, alike=alike)
    return solver.solve(solver.plain.peak_bytes * percent // 100)


def kinds(problem: Problem, solution: Solution) -> tuple[int, int]:
    """Return how many kinds of layers a schedule has, and how often one follows another."""
    return counted(courses(problem, solution.schedule).values())


def counted(layers: Iterable[object]) -> tuple[int, int]:
    """Return how many kinds there are, and how often one follows another."""
    found = [*layers]
    return len(set(found)), sum(a != b for a, b in pairwise(found))


def courses(problem: Problem, schedule: Schedule) -> dict[str, object]:
    """Return what each layer does in backward, in order, but for what not all layers do."""
    transfer = Transfer(problem, written(problem, schedule), ())
    found = {layer: transfer.course(layer) for layer in transfer.new_kinds}
    common = set.intersection(*({name for name, _ in course} for course in found.values()))
    return {
        layer: tuple(run for run in course if run[0] in common or run[1])
        for layer, course in found.items()
    }


@pytest.mark.parametrize("percent", [80, 70, 60, 50, 40])
@pytest.mark.parametrize("layers", [3, 5, 8])
def test_layers_alike_fit_and_are_about_as_quick(layers: int, percent: int) -> None:
    problem = gpt(layers)
    best = solved(problem, percent, Effort.QUICK, alike=False)
    found = solved(problem, percent, Effort.QUICK, alike=True)
    assert found.replay == replay(problem, found.schedule)
    assert found.replay.peak_bytes <= best.eager.peak_bytes * percent // 100
    assert found.replay.time_us <= best.replay.time_us * (1 + TOLERANCE[Effort.QUICK])
    changed = found.schedule != best.schedule
    if found.slower is None and changed:  # found within less
        ranks = [(r.time_us, r.peak_bytes) for r in (found.replay, best.replay)]
        assert ranks[0] < ranks[1]
    else:
        assert (found.slower is not None) == changed
        assert kinds(problem, found) < kinds(problem, best) or not changed
    assert found.lower_bound_us == best.lower_bound_us


def test_layers_that_differ_in_their_order_alone_are_made_alike() -> None:
    """Two operations in another order would be a class of its own to read, too."""
    problem = gpt(5)
    subject = subject_of(problem)
    names = [operation.name for operation in problem.operations]
    first, second = names.index("h.4.d_down.x"), names.index("h.4.d_down.w")
    swap = {first: second, second: first}
    plain = subject.plain()
    moved = Program(tuple(tuple(swap.get(p, p) for p in segment) for segment in plain.segments))
    contest = Contest(subject, 2 * subject.eager().peak_bytes)
    contest.offer("exact", moved)
    assert contest.best is not None
    assert len(set(courses(problem, contest.best.schedule).values())) == 2
    kept = LayersAlike(subject, Effort.NORMAL).kept(contest)
    assert kept is not None
    assert len(set(courses(problem, kept.schedule).values())) == 1
    assert kept.replay.time_us == contest.best.replay.time_us


def test_some_schedules_have_fewer_kinds_of_layers() -> None:
    problem = gpt(8)
    shares = (80, 70, 60, 50, 40)
    pairs = [
        [kinds(problem, solved(problem, s, Effort.QUICK, alike=a)) for s in shares]
        for a in (False, True)
    ]
    assert sum(kinds for kinds, _ in pairs[1]) < sum(kinds for kinds, _ in pairs[0])


def test_layers_of_two_kinds_stand_together() -> None:
    """Of a loop's turns any half may be run again: then the first half is, or the second."""
    problem = gpt(8)
    subject = subject_of(problem)
    again: dict[int, tuple[int, ...]] = {}
    for p, operation in enumerate(problem.operations):
        if re.fullmatch(r"h\.[1357]\.d_down\.w", operation.name):
            again[p] = (problem.producers()[operation.inputs[1]], p)
    segments = (chain(*(again.get(p, (p,)) for p in s)) for s in subject.plain().segments)
    best = prune(problem, Program(tuple(map(tuple, segments))))
    contest = Contest(subject, subject.judge(best)[1].peak_bytes)
    contest.offer("exact", best)
    assert contest.best is not None
    solutions = contest.best, LayersAlike(subject, Effort.QUICK).kept(contest)
    found = [counted(courses(problem, s.schedule).values()) for s in solutions if s]
    assert found == [(2, 7), (2, 1)]
    assert solutions[1] and solutions[1].replay.time_us <= solutions[0].replay.time_us


@pytest.mark.parametrize(
    ("tolerance", "percents"),
    [(warm_start.TOLERANCE[Effort.NORMAL], (80, 70, 60, 50, 40)), (0.0, (70, 50))],
)
def test_planned_again_it_is_the_same_by_the_same_name(
    tolerance: float, percents: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a committed schedule may be less slow than layers alike."""
    monkeypatch.setitem(warm_start.TOLERANCE, Effort.QUICK, tolerance)
    problem = gpt(8)
    changed = 0
    for percent in percents:
        first = solved(problem, percent, Effort.QUICK, alike=True)
        committed = written(problem, first.schedule)
        solver = Solver(problem, "auto", effort=Effort.QUICK, committed=committed, alike=True)
        again = solver.solve(solver.plain.peak_bytes * percent // 100)
        assert (again.strategy, again.schedule) == (first.strategy, first.schedule)
        assert again.slower == first.slower
        changed += first.slower is not None
    assert changed


def test_what_is_found_on_the_way_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search may miss what layers made alike become where they are made to fit."""
    search, fitted = Auto.enter, Repairs.fitted
    missed: list[float] = []
    found: list[float] = []

    def enter(auto: Auto, contest: Contest) -> None:
        low = Contest(auto.subject, contest.budget_bytes * 8 // 10)
        search(auto, low)
        assert low.best is not None
        contest.offer("missed", low.best.program)
        missed.append(low.best.replay.time_us)

    def repaired(repairs: Repairs, *given: Any) -> Program | None:
        program = fitted(repairs, *given)
        if program is not None:
            found.append(repairs.subject.judge(program)[1].time_us)
        return program

    monkeypatch.setattr(Auto, "enter", enter)
    monkeypatch.setattr(Repairs, "fitted", repaired)
    solver = Solver(gpt(4), "auto", effort=Effort.QUICK, alike=True)
    budget = solver.plain.peak_bytes // 2
    solution = solver.solve(budget)
    assert min(found) < missed[0] and solution.replay.peak_bytes <= budget
    assert solution.replay.time_us <= min(found) * (1 + TOLERANCE[Effort.QUICK])


def test_a_thorough_search_keeps_the_best() -> None:
    problem = gpt(3)
    best, found = (solved(problem, 60, Effort.THOROUGH, alike=alike) for alike in (False, True))
    assert found.schedule == best.schedule
    assert found.slower is None


def test_a_strategy_of_its_own_stays_what_it_is() -> None:
    problem = gpt(5)
    budget = Solver(problem, "rotor").plain.peak_bytes * 6 // 10
    plain, alike = (Solver(problem, "rotor", alike=a).solve(budget) for a in (False, True))
    assert plain.schedule == alike.schedule
