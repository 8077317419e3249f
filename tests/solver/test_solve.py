"""Properties of every strategy: legal, within the budget or infeasible, monotone, scale-free."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import Builder, GptShape, gpt_like, problems, unet_like

from remat_gen.solver.contest.auto import NEAR
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.registry import FRONTS
from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.solve import (
    STRATEGIES,
    InfeasibleError,
    Solution,
    Solver,
    Status,
)

SMALL = GptShape(batch=2, tokens=64, width=64, heads=4, vocabulary=100)


def _solve(solver: Solver, budget: int) -> Solution | None:
    try:
        return solver.solve(budget)
    except InfeasibleError:
        return None


@pytest.mark.parametrize("layers", [4, 24])
def test_deep_models_are_searched_to_their_end(layers: int) -> None:
    """A few tight places decide, however many layers there are; the bound is for all schedules."""
    solver = Solver(gpt_like(layers), "auto")
    found = solver.solve(solver.plain.peak_bytes * 60 // 100)
    assert found.status is Status.OPTIMAL
    assert found.gap == 0


def test_near_the_bound_rockmate_is_left_out() -> None:
    """Where the exact search ends without a proof, but hardly above its bound."""
    stages: list[str] = []
    solver = Solver(gpt_like(12), "auto", lambda name, *_: stages.append(name))
    found = solver.solve(solver.plain.peak_bytes * 35 // 100)
    assert found.status is Status.FEASIBLE
    assert found.gap is not None
    assert 0 < found.gap < NEAR[Effort.NORMAL]
    assert "stages" in stages
    assert "rockmate" not in stages


@pytest.mark.parametrize("holds_for", ["all schedules", "those block by block"])
def test_within_a_share_of_the_best_bound(holds_for: str) -> None:
    subject = subject_of(gpt_like(1))
    contest = Contest(subject, subject.eager().peak_bytes)
    assert not contest.within(1.0)
    contest.offer("none", subject.plain())
    assert contest.within(0.0)
    assert contest.best is not None
    contest.best = replace(contest.best, replay=replace(contest.best.replay, time_us=1e9))
    assert not contest.within(0.02)
    contest.bounds.append(Found(None, 0.99e9, holds_for))
    assert contest.within(0.02)
    assert not contest.within(0.01)


@given(problems(), st.sampled_from(STRATEGIES), st.floats(0, 1.2))
@settings(max_examples=150, deadline=None)
def test_within_the_budget_or_infeasible(problem: Problem, strategy: str, share: float) -> None:
    solver = Solver(problem, strategy)
    plain = solver.solve(10**9).eager.peak_bytes
    budget = int(plain * share)
    smallest = solver.smallest_budget()
    found = _solve(solver, budget)
    if strategy in FRONTS:
        assert (found is not None) == (budget >= smallest.nbytes)
    else:
        assert found is not None or budget < smallest.nbytes
    if found is not None:
        assert found.replay.peak_bytes <= budget
        firsts = {p for p in range(len(problem.operations))}
        assert len(found.replay.timeline) == len(firsts) + len(found.replay.reruns)


@given(problems())
@settings(max_examples=40, deadline=None)
def test_the_smallest_budget_is_the_border(problem: Problem) -> None:
    for strategy in FRONTS:
        solver = Solver(problem, strategy)
        smallest = solver.smallest_budget()
        assert solver.solve(smallest.nbytes).replay.peak_bytes <= smallest.nbytes
        assert 0 <= smallest.operation < len(problem.operations) or smallest.nbytes == 0
        if smallest.nbytes:
            with pytest.raises(InfeasibleError) as caught:
                solver.solve(smallest.nbytes - 1)
            assert caught.value.smallest_bytes == smallest.nbytes
            assert caught.value.operation_index == smallest.operation


@given(problems())
@settings(max_examples=40, deadline=None)
def test_more_memory_never_costs_time(problem: Problem) -> None:
    for strategy in ("auto", "rockmate", "rotor"):
        solver = Solver(problem, strategy)
        smallest = solver.smallest_budget().nbytes
        plain = solver.solve(10**9).eager.peak_bytes
        times = [solver.solve(b).replay.time_us for b in range(smallest, plain + 2)]
        assert times == sorted(times, reverse=True)
        assert solver.solve(plain).replay.reruns == ()


@given(problems(), st.floats(0.3, 1))
@settings(max_examples=40, deadline=None)
def test_rockmate_is_never_worse(problem: Problem, share: float) -> None:
    solvers = {strategy: Solver(problem, strategy) for strategy in FRONTS}
    plain = solvers["none"].solve(10**9).eager.peak_bytes
    found = {s: _solve(solver, int(plain * share)) for s, solver in solvers.items()}
    best = found.pop("rockmate")
    for other in found.values():
        if other is not None:
            assert best is not None
            assert best.replay.time_us <= other.replay.time_us


@pytest.mark.parametrize("strategy", ["rotor", "rockmate", "auto"])
def test_what_only_the_first_run_reads_is_not_made_again(strategy: str) -> None:
    """`mask` is drawn by an operation that cannot run again, and leaves its block: read once."""
    b = Builder()
    (x,) = b.op("stem", [], [0])
    mask, seed = b.op("draw", [x], [1, 0])
    (early,) = b.op("early", [seed], [2])
    (_,) = b.op("log", [early], [0])
    (y,) = b.op("mix", [mask], [0], layer="a")
    (late,) = b.op("late", [y], [3], layer="a")
    b.op("end", [late], [0])
    d = b.value("d", 0)
    b.given.append(d)
    (d,) = b.op("d_end", [d], [0], backward=True, workspace=9)
    (d,) = b.op("d_both", [d, early, late], [0], backward=True)
    again = ("early", "late")
    operations = tuple(replace(o, rerunnable=o.backward or o.name in again) for o in b.operations)
    problem = replace(b.problem(), operations=operations)
    solver = Solver(problem, strategy)
    for budget in range(solver.plain.peak_bytes + 1):
        found = _solve(solver, budget)
        assert found is None or found.replay.peak_bytes <= budget


@given(problems(), st.integers(2, 1000), st.floats(0.4, 1))
@settings(max_examples=40, deadline=None)
def test_scale_of_bytes_changes_nothing(problem: Problem, factor: int, share: float) -> None:
    scaled = Problem(
        tuple(replace(o, workspace_bytes=o.workspace_bytes * factor) for o in problem.operations),
        tuple(replace(v, nbytes=v.nbytes * factor) for v in problem.values),
        problem.given,
    )
    solver, other = Solver(problem), Solver(scaled)
    budget = int(solver.solve(10**9).eager.peak_bytes * share)
    one, two = _solve(solver, budget), _solve(other, budget * factor + factor - 1)
    schedules = [found.schedule if found else None for found in (one, two)]
    assert schedules[0] == schedules[1]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_scaled_gpt_has_the_same_schedule(strategy: str) -> None:
    problem = gpt_like(1, SMALL)
    scaled = replace(problem, values=tuple(replace(v, nbytes=v.nbytes * 7) for v in problem.values))
    solvers = Solver(problem, strategy), Solver(scaled, strategy)
    budget = solvers[0].plain.peak_bytes * 9 // 10
    if strategy in FRONTS:  # bisection takes the others long
        budget = solvers[0].smallest_budget().nbytes
        assert solvers[1].smallest_budget().nbytes == budget * 7
    one, two = _solve(solvers[0], budget), _solve(solvers[1], budget * 7)
    assert (one and one.schedule) == (two and two.schedule)


def test_gpt_overheads_are_those_of_the_method() -> None:
    """Guard the quality: percent of extra time of a 6-layer GPT."""
    solver = Solver(gpt_like(6))
    peak = solver.solve(10**12).eager.peak_bytes
    for share, limit in ((90, 0.02), (70, 0.055), (60, 0.11), (50, 0.16)):
        found = solver.solve(peak * share // 100)
        assert found.replay.time_us / found.eager.time_us - 1 < limit
        assert found.proved and found.notes == ()


def test_unet_fits_where_rotor_does_not() -> None:
    problem = unet_like(2)
    peak = Solver(problem, "none").solve(10**12).eager.peak_bytes
    assert Solver(problem).solve(peak * 5 // 10).replay.peak_bytes <= peak * 5 // 10
    with pytest.raises(InfeasibleError):
        Solver(problem, "rotor").solve(peak * 5 // 10)


def test_progress_tells_blocks_and_chain() -> None:
    heard: list[tuple[str, int, int]] = []
    solver = Solver(unet_like(2), progress=lambda *step: heard.append(step))
    solver.solve(solver.plain.peak_bytes * 8 // 10)
    names = list(dict.fromkeys(name for name, _, _ in heard))
    assert names == ["chain", "program", "solve block", "improve"]
    assert all(1 <= n <= total for _, n, total in heard)


def test_unknown_strategies_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown strategy greedy"):
        Solver(gpt_like(1, SMALL), "greedy").solve(10**9)


def test_smallest_budget_names_the_operation() -> None:
    problem = gpt_like(1, SMALL)
    smallest = Solver(problem, "none").smallest_budget()
    assert smallest.nbytes == Solver(problem, "none").solve(10**12).replay.peak_bytes
    assert problem.operations[smallest.operation].backward


SCRIPT = """
import hashlib
from remat_gen.solver.solve import Solver
from solver_problems import uniform_chain, unet_like
digest = hashlib.sha256()
for problem in (unet_like(2), uniform_chain(9)):
    solver = Solver(problem)
    peak = solver.solve(10**12).eager.peak_bytes
    for share in (90, 75, 65):
        digest.update(repr(solver.solve(peak * share // 100)).encode())
print(digest.hexdigest())
"""


def _run(seed: str) -> str:
    here = str(Path(__file__).parent)
    environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": here}
    command = [sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_hash_seed_changes_nothing() -> None:
    assert _run("1") == _run("2")


def test_schedules_are_schedules() -> None:
    found = Solver(unet_like(2), "rotor").solve(10**12)
    assert isinstance(found.schedule, Schedule)
    assert found.blocks[0][0] == 0
    assert [a for a, _ in found.blocks[1:]] == [b for _, b in found.blocks[:-1]]


@pytest.mark.parametrize("stage", ["solve block", "chain", "improve"])
def test_an_interrupt_stops_the_search(stage: str) -> None:
    """At any of rockmate's stages: it has no schedule before it has all of them."""

    def interrupt(name: str, _done: int, _of: int) -> None:
        if name == stage:
            raise KeyboardInterrupt

    solver = Solver(unet_like(4), "rockmate", interrupt)
    with pytest.raises(KeyboardInterrupt):
        solver.solve(solver.plain.peak_bytes * 60 // 100)
