"""Pins: what is kept is made once and stays; what is recomputed is gone when backward begins."""

from __future__ import annotations

import pytest
from brute_force import least_time
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems, uniform_chain

from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.pins import forced, honoured, pinned, recomputable
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.law.schedule import Free, Run, Schedule
from remat_gen.solver.solve import STRATEGIES, InfeasibleError, Solution, Solver, Status


@st.composite
def pinned_problems(draw: st.DrawFn, max_forward: int, *, hard: bool) -> Problem:
    """Draw a problem in which some values are kept and others recomputed."""
    problem = draw(problems(max_forward=max_forward, hard=hard))
    made = sorted({v for o in problem.operations[: problem.forward_count] for v in o.outputs})
    keep = draw(st.sets(st.sampled_from(made), max_size=2))
    kept = {v for o in problem.operations for v in o.outputs if not keep.isdisjoint(o.outputs)}
    free = sorted(recomputable(problem) - kept)
    recompute = draw(st.sets(st.sampled_from(free), min_size=1, max_size=4)) if free else set()
    return pinned(problem, keep, recompute)


def kept(problem: Problem, schedule: Schedule) -> set[int]:
    """Return the values that are there when backward begins, walking over the steps."""
    there: set[int] = set()
    for segment in schedule.segments[: schedule.block_count]:
        for step in segment.steps:
            if isinstance(step, Free):
                there.discard(step.value)
            else:
                there.update(problem.operations[step.operation].outputs)
    return there


def assert_honoured(problem: Problem, solution: Solution) -> None:
    recompute = {v for v, value in enumerate(problem.values) if value.recompute}
    assert not recompute & kept(problem, solution.schedule)
    steps = [step for segment in solution.schedule.segments for step in segment.steps]
    runs = [step.operation for step in steps if isinstance(step, Run)]
    for p, operation in enumerate(problem.operations):
        assert operation.rerunnable or runs.count(p) == 1
    assert set(forced(problem)) <= set(solution.replay.reruns)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(problem=pinned_problems(5, hard=True), share=st.integers(50, 100))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_strategy_honours_pins(strategy: str, problem: Problem, share: int) -> None:
    solver = Solver(problem, strategy)
    smallest = solver.smallest_budget().nbytes
    budget = max(smallest, solver.plain.peak_bytes * share // 100)
    try:
        solution = solver.solve(budget)
    except InfeasibleError:
        assert strategy == "checkmate-lp"  # its rounding may fail with more memory
        return
    assert solution.replay.peak_bytes <= budget
    assert_honoured(problem, solution)
    assert solution.replay.time_us >= solution.lower_bound_us - 1e-6


@given(problem=pinned_problems(4, hard=False), share=st.integers(40, 120))
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_bounds_and_optima_are_those_of_brute_force(problem: Problem, share: int) -> None:
    solver = Solver(problem, "auto")
    budget = solver.plain.peak_bytes * share // 100
    optimum = least_time(problem, budget)
    try:
        solution = solver.solve(budget)
    except InfeasibleError as error:
        assert not (error.proved and optimum is not None)
        return
    assert optimum is not None, "a schedule within the budget where there is none"
    assert solution.replay.time_us >= optimum - 1e-6
    assert solution.lower_bound_us <= optimum + 1e-6
    if solution.status is Status.OPTIMAL:
        assert solution.replay.time_us == pytest.approx(optimum)  # sums in another order


def test_no_pins_change_nothing() -> None:
    problem = gpt_like(2)
    assert pinned(problem, set(), set()) == problem
    program = subject_of(problem).plain()
    assert honoured(problem, program) is program


def test_what_is_recomputed_from_recomputed_values_runs_in_order() -> None:
    problem = uniform_chain(4)
    all_gone = pinned(problem, set(), {1, 2, 3})
    solution = Solver(all_gone, "none").solve(100)
    assert solution.replay.reruns == (1, 2, 3)
    assert solution.replay.time_us == 11.0
    assert solution.status is Status.OPTIMAL


def test_a_kept_value_is_not_dropped_for_a_budget() -> None:
    problem = gpt_like(2)
    gelu = next(p for p, o in enumerate(problem.operations) if o.name == "h.0.gelu")
    free = Solver(problem, "rotor")
    fixed = Solver(pinned(problem, set(problem.operations[gelu].outputs), set()), "rotor")
    budget = fixed.smallest_budget().nbytes
    assert free.smallest_budget().nbytes < budget
    assert gelu in free.solve(budget).replay.reruns
    assert gelu not in fixed.solve(budget).replay.reruns


def test_the_law_refuses_what_breaks_a_pin() -> None:
    problem = pinned(uniform_chain(3), set(), {0})
    plain = Program(((0, 1, 2), (3, 4, 5)))
    subject = subject_of(problem)
    assert honoured(problem, plain).flat() == [0, 1, 2, 3, 4, 0, 5]
    with pytest.raises(IllegalScheduleError, match=r"f0\.0: to be recomputed, but kept"):
        replay(problem, to_schedule(problem, plain))
    assert subject.judge(plain)[1].reruns == (0,)


def test_contradictions_are_refused() -> None:
    problem = uniform_chain(3)
    with pytest.raises(ValueError, match=r"f1\.0 cannot be recomputed"):
        pinned(problem, {1}, {1})
