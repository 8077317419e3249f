"""Schedules that must fit at other sizes, too: none that does not is ever handed out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from brute_force import least_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solver_problems import problems, uniform_chain

from remat_gen.solver.all_sizes import AllSizesSolver, Elsewhere, roomy
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import INTERRUPTED
from remat_gen.solver.solve import InfeasibleError, Solution, Solver, Status

QUICK = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def smaller(draw: st.DrawFn, problem: Problem) -> Elsewhere:
    """Draw a problem's twin: no value is larger, some operations need more room."""
    values = tuple(replace(v, nbytes=draw(st.integers(0, v.nbytes))) for v in problem.values)
    twin = replace(problem, values=values)
    needed = [draw(st.integers(0, 20)) for _ in problem.operations]
    operations = []
    for p, (operation, nbytes) in enumerate(zip(problem.operations, needed, strict=True)):
        twin_room = twin.room_bytes(p) - operation.workspace_bytes
        more = twin_room + nbytes > problem.room_bytes(p)
        operations.append(replace(operation, workspace_bytes=nbytes if more else 0))
    return Elsewhere("a batch of 1", replace(twin, operations=tuple(operations)))


@st.composite
def cases(
    draw: st.DrawFn, max_forward: int = 5, *, hard: bool = True
) -> tuple[Problem, tuple[Elsewhere, ...]]:
    """Draw a problem with distinct operations, and one or two twins."""
    problem = draw(problems(max_forward, hard=hard))
    operations = tuple(replace(o, signature=o.name) for o in problem.operations)
    problem = replace(problem, operations=operations)
    return problem, tuple(draw(st.lists(smaller(problem), min_size=1, max_size=2)))


def search(
    problem: Problem, elsewhere: tuple[Elsewhere, ...], strategy: str = "rotor"
) -> AllSizesSolver:
    def make(one: Problem) -> Solver:
        return Solver(one, strategy)

    return AllSizesSolver(make(problem), elsewhere, make)


def highest(problem: Problem, elsewhere: tuple[Elsewhere, ...], schedule: Schedule) -> int:
    return max(replay(p, schedule).peak_bytes for p in (problem, *(e.problem for e in elsewhere)))


@given(case=cases(), budget=st.integers(1, 60))
@QUICK
def test_what_is_handed_out_fits_everywhere(
    case: tuple[Problem, tuple[Elsewhere, ...]], budget: int
) -> None:
    problem, elsewhere = case
    try:
        found = search(problem, elsewhere).solve(budget)
    except InfeasibleError as error:
        assert error.smallest_bytes > budget
        budget = error.smallest_bytes
        found = search(problem, elsewhere).solve(budget)
    assert highest(problem, elsewhere, found.solution.schedule) == found.peak.nbytes <= budget
    assert found.solution.replay == replay(problem, found.solution.schedule)


@given(case=cases(), share=st.integers(50, 100))
@QUICK
def test_room_enough_for_all_sizes_is_enough_at_each(
    case: tuple[Problem, tuple[Elsewhere, ...]], share: int
) -> None:
    problem, elsewhere = case
    solver = Solver(roomy(problem, elsewhere), "rotor")
    least, plain = solver.smallest_budget().nbytes, solver.plain.peak_bytes
    budget = least + (plain - least) * share // 100
    schedule = solver.solve(budget).schedule
    assert highest(problem, elsewhere, schedule) <= budget


@given(case=cases(3, hard=False), budget=st.integers(10, 40))
@settings(QUICK, max_examples=15)
def test_what_is_called_optimal_is_the_least_of_all(
    case: tuple[Problem, tuple[Elsewhere, ...]], budget: int
) -> None:
    problem, elsewhere = case
    try:
        found = search(problem, elsewhere, "auto").solve(budget).solution
    except InfeasibleError:
        return
    least = least_time(problem, budget)
    assert found.lower_bound_us <= (least or 0) + 1e-6
    if found.status is Status.OPTIMAL:
        assert found.replay.time_us == pytest.approx(least)  # sums in another order


def chain() -> tuple[Problem, tuple[Elsewhere, ...]]:
    """Return a chain whose first backward operation needs 60 bytes more at half of the size."""
    problem = uniform_chain(8)
    here = replace(problem, values=tuple(replace(v, nbytes=10) for v in problem.values))
    half = tuple(replace(v, nbytes=5) for v in problem.values)
    operations = tuple(
        replace(o, workspace_bytes=60 if p == problem.forward_count else 0)
        for p, o in enumerate(problem.operations)
    )
    return here, (Elsewhere("a batch of 1", replace(here, values=half, operations=operations)),)


def test_without_other_sizes_it_is_the_search_of_the_problem() -> None:
    problem, _ = chain()
    alone = Solver(problem, "auto").solve(60)
    found = search(problem, (), "auto").solve(60)
    assert (found.solution, found.peak.where) == (alone, "")
    with pytest.raises(InfeasibleError) as error:
        search(problem, ()).solve(1)
    assert not error.value.where


def test_a_schedule_that_fits_anyway_is_kept() -> None:
    problem, elsewhere = chain()
    found = search(problem, elsewhere, "auto").solve(110)  # 45 are resident, 5 are made
    assert found.solution == Solver(problem, "auto").solve(110)
    assert (found.peak.nbytes, found.peak.where) == (110, "a batch of 1")


def test_one_that_does_not_fit_gives_way_to_the_next() -> None:
    problem, elsewhere = chain()
    found = search(problem, elsewhere, "auto").solve(100)
    assert Solver(problem, "auto").solve(100).replay.time_us == 16  # all is kept
    assert (found.peak.nbytes, found.solution.replay.time_us) == (100, 18)
    assert found.solution.status is Status.FEASIBLE
    assert found.solution.lower_bound_us == 16
    assert found.solution.eager.peak_bytes == 100


def test_the_blame_is_where_it_belongs() -> None:
    problem, elsewhere = chain()
    with pytest.raises(InfeasibleError) as error:
        search(problem, elsewhere, "auto").solve(70)
    assert error.value.smallest_bytes == 75  # 60, and the half of 30, the smallest of the problem
    assert error.value.where == "a batch of 1"
    assert error.value.operation_index == problem.forward_count
    assert not error.value.proved


def test_a_later_search_that_is_interrupted_says_so() -> None:
    problem, elsewhere = chain()

    class Interrupted(Solver):
        def solve(self, budget_bytes: int) -> Solution:
            return replace(super().solve(budget_bytes), interrupted=True, notes=(INTERRUPTED,))

    def make(one: Problem) -> Solver:
        return Interrupted(one, "auto")

    found = AllSizesSolver(Solver(problem, "auto"), elsewhere, make).solve(100).solution
    assert found.interrupted
    assert found.notes == (INTERRUPTED,)
