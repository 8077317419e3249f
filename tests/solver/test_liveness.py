"""Programs become legal schedules; the quick measure and the replay agree."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems, unet_like

from remat_gen.solver.blocks.block_chain import build_chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import keep_all, per_layer
from remat_gen.solver.improve.memory_measure import measured
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.run_timeline import timeline_of
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Free, Run


@st.composite
def programs(draw: st.DrawFn) -> tuple[Problem, Program]:
    """Draw a problem and a legal program with re-runs anywhere in backward."""
    problem = draw(problems())
    forward = problem.forward_count
    cuts = draw(st.sets(st.integers(1, max(1, forward - 1)), max_size=3))
    chain = build_chain(problem, tuple(sorted(c for c in cuts if c < forward)))
    plain = keep_all(problem, chain)
    again = [p for p in range(forward) if problem.operations[p].rerunnable]
    segments = list(plain.segments[: plain.block_count])
    for segment in plain.segments[plain.block_count :]:
        runs: list[int] = []
        for t in segment:
            some = st.sets(st.sampled_from(again), max_size=3) if again else st.just(set())
            runs += [*sorted(draw(some)), t]
        segments.append(tuple(runs))
    return problem, Program(tuple(segments))


@given(programs())
@settings(max_examples=300, deadline=None)
def test_measure_is_the_replay(drawn: tuple[Problem, Program]) -> None:
    problem, program = drawn
    for candidate in (program, prune(problem, program)):
        judged = replay(problem, to_schedule(problem, candidate))
        quick = measured(timeline_of(ProblemArrays(problem), candidate))
        assert (quick.peak_bytes, quick.time_us) == (judged.peak_bytes, judged.time_us)
        assert quick.inside.tolist() == [moment.nbytes for moment in judged.timeline]


@given(programs())
@settings(max_examples=100, deadline=None)
def test_no_free_can_come_earlier(drawn: tuple[Problem, Program]) -> None:
    """Each value is freed by the last step that touches it before it is made again."""
    problem, program = drawn
    for segment in to_schedule(problem, program).segments:
        current = -1
        for step in segment.steps:
            if isinstance(step, Run):
                current = step.operation
            elif current >= 0:
                operation = problem.operations[current]
                assert step.value in operation.inputs + operation.outputs


@given(programs())
@settings(max_examples=100, deadline=None)
def test_prune_keeps_only_reruns_that_are_read(drawn: tuple[Problem, Program]) -> None:
    problem, program = drawn
    pruned = prune(problem, program)
    assert prune(problem, pruned) == pruned
    assert len(pruned.flat()) <= len(program.flat())
    assert set(pruned.flat()) == set(program.flat())


@given(problems())
@settings(max_examples=100, deadline=None)
def test_keep_all_runs_each_operation_once(problem: Problem) -> None:
    judged = replay(problem, to_schedule(problem, keep_all(problem, partition(problem, 3))))
    assert judged.reruns == ()


@given(problems())
@settings(max_examples=100, deadline=None)
def test_per_layer_is_legal(problem: Problem) -> None:
    replay(problem, to_schedule(problem, per_layer(problem, partition(problem, 3))))


def test_per_layer_halves_the_peak_of_a_gpt() -> None:
    problem = gpt_like(12)
    chain = partition(problem)
    eager = replay(problem, to_schedule(problem, keep_all(problem, chain)))
    layered = replay(problem, to_schedule(problem, per_layer(problem, chain)))
    assert layered.peak_bytes < eager.peak_bytes / 2
    assert 1.2 < layered.time_us / eager.time_us < 1.4


def test_nothing_is_freed_that_is_held() -> None:
    problem = unet_like(3)
    schedule = to_schedule(problem, keep_all(problem, partition(problem)))
    freed = [s.value for g in schedule.segments for s in g.steps if isinstance(s, Free)]
    assert all(problem.values[v].held is Held.FREE for v in freed)
    assert len(freed) == len(set(freed))
