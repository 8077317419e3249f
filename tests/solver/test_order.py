"""Runs that move stay legal, cost nothing, and take off what is over the budget."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import keep_all, per_layer
from remat_gen.solver.improve.budget_grid import bare_ladder
from remat_gen.solver.improve.memory_measure import Trial, measured, over_budget, trial_of
from remat_gen.solver.improve.move_effect import MoveEffect
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.ruin_and_recreate import Window
from remat_gen.solver.improve.run_order import reordered, spans
from remat_gen.solver.improve.run_timeline import Timeline, timeline_of
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Operation, Problem, Value
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stages.exact_search import search


def plain(problem: Problem) -> Trial:
    """Return the trial of the traced order."""
    program = keep_all(problem, partition(problem))
    return trial_of(timeline_of(ProblemArrays(problem), program))


def layered(count: int, seed: int) -> BareGraph:
    """Return a random layered graph, four nodes wide."""
    random = Random(seed)
    nodes = []
    for i in range(count):
        earlier = range(max(0, i - i % 4 - 8), i - i % 4)
        inputs = sorted(random.sample(earlier, min(len(earlier), random.randint(1, 3))))
        time, nbytes = float(random.randint(1, 9)), random.randint(1, 32)
        nodes.append(Node(f"n{i}", time, nbytes, False, tuple(inputs)))
    return BareGraph(tuple(nodes), frozenset({count - 1}))


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 10**6))
def test_every_place_in_a_span_is_legal(problem: Problem, seed: int) -> None:
    timeline = plain(problem).timeline
    random = Random(seed)
    y = random.randrange(timeline.length)
    low, high = spans(timeline)
    moved = timeline.moved(y, random.randint(low[y], high[y]))
    judged = replay(problem, to_schedule(problem, moved.program()))
    assert judged.peak_bytes == measured(moved).peak_bytes
    assert judged.time_us == pytest.approx(timeline.time_us)


@settings(max_examples=150, deadline=None)
@given(problems(), st.booleans(), st.integers(0, 10**6))
def test_the_effect_of_a_move_is_what_is_measured(problem: Problem, bare: bool, seed: int) -> None:
    random = Random(seed)
    if bare:
        problem = layered(random.randint(4, 30), seed).problem()
        trial = trial_of(timeline_of(ProblemArrays(problem), with_reruns(problem, random)))
    else:
        trial = trial_of(
            timeline_of(ProblemArrays(problem), per_layer(problem, partition(problem)))
        )
    budget = random.randint(0, trial.peak_bytes)
    effect, (low, high) = MoveEffect(trial, budget), spans(trial.timeline)
    for y in range(trial.timeline.length):
        for z in {int(low[y]), int(high[y]), random.randint(int(low[y]), int(high[y]))} - {y}:
            if effect.knows(y):
                moved = trial_of(trial.timeline.moved(y, z))
                assert effect.over(y, z) == over_budget(moved, budget)


def with_reruns(problem: Problem, random: Random) -> Program:
    """Return a bare graph's program that makes again, here and there, what is read next."""
    runs: list[int] = []
    for p, operation in enumerate(problem.operations):
        runs += [problem.producers()[v] for v in operation.inputs if random.random() < 0.3]
        runs.append(p)
    return Program(((), tuple(runs)))


@settings(max_examples=60, deadline=None)
@given(problems(), st.integers(0, 10**6))
def test_ordered_operations_keep_their_order(problem: Problem, seed: int) -> None:
    random = Random(seed)
    problem = with_ordered(problem, random)
    timeline = plain(problem).timeline
    for _ in range(10):
        y = random.randrange(timeline.length)
        low, high = spans(timeline)
        timeline = timeline.moved(y, random.randint(low[y], high[y]))
    replay(problem, to_schedule(problem, timeline.program()))
    runs = [p for p in timeline.program().flat() if problem.operations[p].ordered]
    assert runs == sorted(runs)


@settings(max_examples=20, deadline=None)
@given(problems(), st.integers(0, 10**6), st.integers(60, 99))
def test_no_search_breaks_the_order(problem: Problem, seed: int, share: int) -> None:
    problem = with_ordered(problem, Random(seed))
    found = search(problem, plain(problem).peak_bytes * share // 100, Effort.QUICK)
    runs = [p for p in found.runs or () if problem.operations[p].ordered]
    assert runs == sorted(runs)


def test_the_replay_refuses_a_broken_order() -> None:
    values = (Value("x", 1), Value("a", 1), Value("b", 1))
    forward = Operation("f", 1.0, 0, (), (0,), backward=False)
    backward = [
        Operation(name, 1.0, 0, (0,), (v,), backward=True, ordered=True)
        for name, v in (("first", 1), ("second", 2))
    ]
    problem = Problem((forward, *backward), values)
    replay(problem, to_schedule(problem, Program(((0,), (1, 2)))))
    with pytest.raises(IllegalScheduleError, match="first must run before second"):
        replay(problem, to_schedule(problem, Program(((0,), (2, 1)))))


def with_ordered(problem: Problem, random: Random) -> Problem:
    """Return the problem with half of its backward operations ordered."""
    operations = (
        replace(o, ordered=o.backward and random.random() < 0.5) for o in problem.operations
    )
    return replace(problem, operations=tuple(operations))


@pytest.mark.parametrize("seed", range(4))
def test_order_alone_lowers_the_peak_of_a_layered_graph(seed: int) -> None:
    problem = layered(60, seed).problem()
    program = Program(((), tuple(range(60))))
    start = trial_of(timeline_of(ProblemArrays(problem), program))
    found = reordered(start, start.peak_bytes * 9 // 10)
    judged = replay(problem, to_schedule(problem, found.timeline.program()))
    assert judged.peak_bytes == found.peak_bytes < start.peak_bytes
    assert judged.reruns == ()


def test_bare_ladder_is_within_budget_and_time_falls() -> None:
    problem = layered(60, 1).problem()
    ladder = bare_ladder(problem, [Program(((), tuple(range(60))))], Effort.QUICK)
    times = []
    for share in range(60, 101, 5):
        budget = ladder.plain.peak_bytes * share // 100
        found = ladder.best(budget)
        if found is not None:
            judged = replay(problem, to_schedule(problem, found.program))
            assert judged.peak_bytes <= budget
            times.append(judged.time_us)
    assert len(times) > 2
    assert times == sorted(times, reverse=True)
    assert times[0] > times[-1] == ladder.plain.time_us


def test_window_improves_what_single_exchanges_do_not() -> None:
    problem = gpt_like(4)
    start = plain(problem)
    budget = start.peak_bytes * 6 // 10
    window = Window(budget, start.time_us, start.time_us, Random(0))
    everything = timeline_with_all_reruns(start.timeline)
    assert everything.peak_bytes <= budget
    improved = window.improved(everything, 40)
    judged = replay(problem, to_schedule(problem, improved.timeline.program()))
    assert judged.peak_bytes <= budget
    assert judged.time_us < everything.time_us


def test_window_ends_where_nothing_runs_again() -> None:
    """A floor that another order of summation puts a hair below: there is no re-run to choose."""
    start = plain(gpt_like(4))
    floor_us = start.time_us * (1 - 1e-9)
    window = Window(start.peak_bytes, start.time_us, floor_us, Random(0))
    assert window.improved(start, 40) is start


def timeline_with_all_reruns(timeline: Timeline) -> Trial:
    """Return the program that re-runs every layer before its backward."""
    problem = timeline.arrays.problem
    return trial_of(timeline_of(timeline.arrays, per_layer(problem, partition(problem))))
