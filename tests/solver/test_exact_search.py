"""The exact search against plain enumeration, and the properties of every strategy."""

from __future__ import annotations

from dataclasses import replace

from exact_oracle import bare, dags, least_peak, least_time, smallest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import problems

from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.stages.exact_search import search

BUDGETS = st.integers(0, 30)


def _time(problem: Problem, found: Found, budget_bytes: int) -> float | None:
    """Return the replayed time of a result, which must be within the budget."""
    if found.runs is None:
        return None
    judged = incumbent_of(problem, 0).offer(found.runs)
    assert judged is not None and judged.replay.peak_bytes <= budget_bytes
    assert found.lower_bound_us <= judged.time_us
    return judged.time_us


@settings(max_examples=300, deadline=None)
@given(dags(), BUDGETS)
def test_equals_enumeration(problem: Problem, budget_bytes: int) -> None:
    found = search(problem, budget_bytes)

    assert found.complete and found.bound_for == "all schedules"
    assert _time(problem, found, budget_bytes) == least_time(problem, budget_bytes)


@settings(max_examples=60, deadline=None)
@given(dags())
def test_smallest_budget_equals_enumeration(problem: Problem) -> None:
    assert smallest(problem) == least_peak(problem)


@settings(max_examples=60, deadline=None)
@given(problems(max_forward=4, hard=False), BUDGETS)
def test_training_equals_enumeration(problem: Problem, budget_bytes: int) -> None:
    found = search(problem, budget_bytes)
    optimum = least_time(problem, budget_bytes)
    time_us = _time(problem, found, budget_bytes)

    if found.bound_for == "all schedules":
        assert found.complete and time_us == optimum
    elif time_us is not None:  # block by block: a smaller class
        assert optimum is not None and time_us >= optimum


@settings(max_examples=60, deadline=None)
@given(problems(max_forward=5), st.integers(0, 60))
def test_hard_training_problems_are_judged_by_replay(problem: Problem, budget_bytes: int) -> None:
    backward = (replace(o, rerunnable=o.rerunnable and not o.backward) for o in problem.operations)
    problem = replace(problem, operations=tuple(backward))
    found = search(problem, budget_bytes, Effort.QUICK)
    time_us = _time(problem, found, budget_bytes)

    assert found.complete or time_us is None or found.lower_bound_us <= time_us


@settings(max_examples=40, deadline=None)
@given(dags(most=12), BUDGETS)
def test_more_budget_is_no_slower(problem: Problem, budget_bytes: int) -> None:
    small = _time(problem, search(problem, budget_bytes), budget_bytes)
    large = _time(problem, search(problem, budget_bytes + 2), budget_bytes + 2)

    assert small is None or (large is not None and large <= small)


@settings(max_examples=40, deadline=None)
@given(dags(most=10), BUDGETS, st.sampled_from([3, 512, 1 << 20]))
def test_scale_of_bytes_does_not_matter(problem: Problem, budget_bytes: int, scale: int) -> None:
    values = tuple(replace(v, nbytes=v.nbytes * scale) for v in problem.values)
    scaled = replace(problem, values=values)

    assert search(scaled, budget_bytes * scale) == search(problem, budget_bytes)


def test_incumbent_is_kept_and_better_ones_are_heard() -> None:
    problem = bare([(1, 1, []), (1, 2, [0]), (1, 1, [1]), (1, 1, [0, 2])])
    heard: list[float] = []
    found = search(problem, 3, incumbent=(0, 1, 2, 0, 3), on_better=lambda _, t: heard.append(t))

    assert heard == sorted(heard, reverse=True)
    assert _time(problem, found, 3) == least_time(problem, 3) == heard[-1]


def test_nothing_to_run() -> None:
    assert search(Problem((), ()), 0) == Found((), complete=True)
    assert smallest(Problem((), ())) == 0
