"""Which values go to the host: within the budget, no slower than without."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import GptShape, gpt_like, problems, uniform_chain

from remat_gen.solver.all_sizes import AllSizesSolver
from remat_gen.solver.law.pins import pinned
from remat_gen.solver.law.problem import Held, HostLink, Problem
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Fetch, Run, Send
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.offload.offload_search import pruned
from remat_gen.solver.offload.offload_solver import NAME, OffloadSolver
from remat_gen.solver.solve import InfeasibleError, Solution, Solver


def _travelling(problem: Problem, link: HostLink) -> Problem:
    forward = {v for o in problem.operations[: problem.forward_count] for v in o.outputs}
    values = tuple(
        replace(value, travels=value.held is Held.FREE and v in forward)
        for v, value in enumerate(problem.values)
    )
    return replace(problem, values=values, link=link)


def _solve(problem: Problem, budget: int) -> Solution:
    def make(given: Problem) -> Solver:
        return Solver(given, "auto", effort=Effort.QUICK)

    return OffloadSolver(problem, AllSizesSolver(make(problem), (), make)).solve(budget).solution


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(1, 40), st.integers(0, 3), st.floats(0.3, 1.0))
def test_within_the_budget_and_no_slower(
    problem: Problem, speed: int, start: int, share: float
) -> None:
    problem = _travelling(problem, HostLink(speed / 10, float(start)))
    without = Solver(problem, "auto", effort=Effort.QUICK)
    budget = int(share * without.plain.peak_bytes)
    try:
        found = _solve(problem, budget)
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            without.solve(budget)
        return
    again = replay(problem, found.schedule)
    assert again == found.replay
    assert again.peak_bytes <= budget
    try:
        known = without.solve(budget)
    except InfeasibleError:
        return
    assert found.replay.time_us <= known.replay.time_us
    assert (found.strategy == NAME) == bool(found.replay.travelled) or not known.replay.reruns


@settings(max_examples=40, deadline=None)
@given(problems(), st.integers(1, 40), st.floats(0.3, 1.0))
def test_a_glance_is_within_the_budget_and_no_slower(
    problem: Problem, speed: int, share: float
) -> None:
    problem = _travelling(problem, HostLink(speed / 10))
    without = Solver(problem, "auto", effort=Effort.QUICK)
    budget = int(share * without.plain.peak_bytes)
    reruns = AllSizesSolver(without, (), lambda given: Solver(given, "auto"))
    found, known = OffloadSolver(problem, reruns).glance(budget), without.glance(budget)
    assert found is None or found.peak_bytes <= budget
    assert known is None or (found is not None and found.time_us <= known.replay.time_us)


def test_a_glance_sends_values_where_that_pays() -> None:
    problem = _travelling(gpt_like(2), HostLink(1e9))
    solver = Solver(problem, "auto", effort=Effort.QUICK)
    reruns = AllSizesSolver(solver, (), lambda given: Solver(given, "auto"))
    budget = solver.plain.peak_bytes * 7 // 10
    found, known = OffloadSolver(problem, reruns).glance(budget), solver.glance(budget)
    assert found is not None and known is not None and found.travelled
    assert found.time_us < known.replay.time_us


def test_a_chain_whose_copies_hide_takes_no_longer_than_eager() -> None:
    """Forward runs at one value a microsecond, and so does each engine: half is hidden at least."""
    problem = _travelling(uniform_chain(16), HostLink(1.0))
    without = Solver(problem, "auto")
    budget = without.plain.peak_bytes // 2
    rerun, found = without.solve(budget), _solve(problem, budget)
    assert rerun.replay.time_us > 32
    assert found.replay.time_us == 32
    assert found.replay.waits_us == 0
    assert not found.replay.reruns


def test_what_cannot_be_run_again_is_sent() -> None:
    chain = uniform_chain(8)
    fixed = tuple(replace(o, rerunnable=False) for o in chain.operations)
    problem = _travelling(replace(chain, operations=fixed), HostLink(1.0))
    budget = Solver(problem, "auto").plain.peak_bytes - 2
    with pytest.raises(InfeasibleError):
        Solver(problem, "auto").solve(budget)
    assert _solve(problem, budget).replay.peak_bytes <= budget


def test_a_slow_link_is_left_alone() -> None:
    problem = _travelling(uniform_chain(12), HostLink(1e-3))
    budget = Solver(problem, "auto").plain.peak_bytes // 2
    found = _solve(problem, budget)
    assert not found.replay.travelled
    assert found.schedule == Solver(problem, "auto", effort=Effort.QUICK).solve(budget).schedule


def test_pinned_values_do_not_travel() -> None:
    problem = _travelling(uniform_chain(8), HostLink(1.0))
    kept = pinned(problem, frozenset({0}), frozenset({1}))
    assert [v.travels for v in kept.values[:3]] == [False, False, True]


def test_a_gpt_gains_what_the_engine_hides() -> None:
    """What an engine copies in forward's time is worth as much as so much more memory."""
    shape = GptShape(batch=4, tokens=256, width=512, heads=8, vocabulary=4096)
    problem = _travelling(gpt_like(3, shape), HostLink(20e3, 5.0))
    without = Solver(problem, "auto", effort=Effort.QUICK)
    budget = without.plain.peak_bytes // 2
    rerun, found = without.solve(budget), _solve(problem, budget)
    assert found.replay.peak_bytes <= budget
    assert found.replay.waits_us < 0.01 * found.replay.time_us
    forward = sum(o.time_us for o in problem.operations[: problem.forward_count])
    sent = sum(problem.values[v].nbytes for v in found.replay.travelled)
    assert 0 < sent <= 20e3 * forward
    more = without.solve(budget + int(0.8 * 20e3 * forward))
    assert found.replay.time_us <= more.replay.time_us < rerun.replay.time_us


def test_sends_stand_behind_makers_and_fetches_before_readers() -> None:
    problem = _travelling(gpt_like(2, GptShape(2, 64, 64, 2, 256)), HostLink(100.0))
    found = _solve(problem, Solver(problem, "auto").plain.peak_bytes * 2 // 3)
    seen: set[int] = set()
    for segment in found.schedule.segments:
        for step in segment.steps:
            if isinstance(step, Run):
                seen.update(problem.operations[step.operation].outputs)
            elif isinstance(step, Send | Fetch):
                assert step.value in seen
                assert segment.backward == isinstance(step, Fetch)


def test_what_nothing_reads_is_not_fetched() -> None:
    from remat_gen.solver.law.program import Program

    problem = _travelling(uniform_chain(3), HostLink(1.0))
    runs, count = tuple(range(3)), len(problem.operations)
    program = Program((runs, (3, count + 2, 0, 4, 5, count)))
    assert pruned(problem, program) == Program((runs, (3, 0, 4, 5)))
