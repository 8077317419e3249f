"""A schedule with parts as one problem: the replay counts what is there while a part runs."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import problems

from remat_gen.solver.compiled.fused import PartFigures, fuse, replay_fused
from remat_gen.solver.compiled.parts import Part, ends_of, longest_parts
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment
from remat_gen.solver.solve import Solver

# f0 makes a (100); f1: a -> b (10); f2: b -> c (10); g: c, a -> w (5), and w is held
PROBLEM = Problem(
    (
        Operation("f0", 1.0, 0, (), (0,), False),
        Operation("f1", 2.0, 3, (0,), (1,), False),
        Operation("f2", 4.0, 0, (1,), (2,), False),
        Operation("g", 8.0, 0, (2,), (3,), True),
    ),
    (Value("a", 100), Value("b", 10), Value("c", 10), Value("w", 5, Held.SEGMENT)),
)
FORWARD = Segment(0, False, (Run(0), Run(1), Free(0), Run(2), Free(1)))
SCHEDULE = Schedule((FORWARD, Segment(0, True, (Run(3), Free(2)))))
FUSIBLE = (False, True, True, True)


def test_the_longest_parts_end_with_their_segment() -> None:
    assert longest_parts(PROBLEM, SCHEDULE, FUSIBLE) == (Part(0, 1, 4), Part(1, 0, 1))


def test_a_part_reads_and_makes_what_others_do_not() -> None:
    ends = ends_of(PROBLEM, SCHEDULE, Part(0, 1, 4))
    assert ends.inputs == (0,)
    assert ends.results == (2,)


def test_inputs_live_until_a_part_returns_and_what_dies_inside_is_never_there() -> None:
    fused = fuse(PROBLEM, SCHEDULE, {Part(0, 1, 4): PartFigures(5.0, 7)})
    assert [operation.name for operation in fused.problem.operations[:2]] == ["f0", "g"]
    assert fused.part_at(2) == Part(0, 1, 4)
    assert fused.part_at(1) is None
    figures = replay(fused.problem, fused.schedule)
    assert figures.peak_bytes == 100 + 10 + 7
    assert figures.time_us == 1.0 + 5.0 + 8.0


def test_halves_share_nothing_and_miss_nothing() -> None:
    first, second = Part(0, 1, 4).halves(SCHEDULE)
    assert (first.runs(SCHEDULE), second.runs(SCHEDULE)) == ((1,), (2,))
    assert first.halves(SCHEDULE) == ()
    assert ends_of(PROBLEM, SCHEDULE, first).results == (1,)


def test_a_value_that_is_there_is_not_made_by_a_part() -> None:
    """Run again, f1 would hand out a second b: it stays outside."""
    again = Segment(0, True, (Run(1), Run(2), Run(3), Free(0), Free(1), Free(2)))
    forward = Segment(0, False, (Run(0), Run(1), Run(2), Free(2)))
    parts = longest_parts(PROBLEM, Schedule((forward, again)), FUSIBLE)
    assert parts == (Part(0, 1, 3), Part(1, 1, 3))


@settings(max_examples=150, deadline=None)
@given(problem=problems(), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_parts_of_one_operation_change_no_figure(problem: Problem, share: float, seed: int) -> None:
    schedule = _schedule(problem, share)
    chance = Random(seed)
    fusible = [chance.random() < 0.6 for _ in problem.operations]
    single = [
        Part(part.segment, index, index + 1)
        for part in longest_parts(problem, schedule, fusible)
        for index in range(part.start, part.stop)
        if _in_new_memory(problem, schedule.segments[part.segment].steps[index])
    ]
    figures = {part: _figures_of_one(problem, schedule, part) for part in single}
    for found, keep in zip(replay_fused(problem, schedule, figures), (False, True), strict=True):
        wanted = replay(problem, schedule, keep_gradients=keep)
        assert found.peak_bytes == wanted.peak_bytes
        assert found.reruns == wanted.reruns
        assert abs(found.time_us - wanted.time_us) < 1e-6  # sums in the same order


@settings(max_examples=150, deadline=None)
@given(problem=problems(), share=st.floats(0, 1), seed=st.integers(0, 99))
def test_any_parts_can_be_replayed(problem: Problem, share: float, seed: int) -> None:
    """While a part runs there is at least what goes in and what comes out."""
    schedule = _schedule(problem, share)
    chance = Random(seed)
    parts = longest_parts(problem, schedule, [chance.random() < 0.8 for _ in problem.operations])
    figures, _ = replay_fused(problem, schedule, dict.fromkeys(parts, PartFigures(1.0, 11)))
    for part in parts:
        ends = ends_of(problem, schedule, part)
        least = sum(problem.values[v].nbytes for v in {*ends.inputs, *ends.results})
        assert figures.peak_bytes >= least + 11 - _held(problem)


def _in_new_memory(problem: Problem, step: Run | Free) -> bool:
    """Tell whether a step runs an operation that writes nothing over: no part does."""
    return isinstance(step, Run) and problem.operations[step.operation].over is None


def _held(problem: Problem) -> int:
    return sum(value.nbytes for value in problem.values if value.held is Held.SEGMENT)


def _schedule(problem: Problem, share: float) -> Schedule:
    solver = Solver(problem, "rotor")
    smallest, plain = solver.smallest_budget().nbytes, solver.plain.peak_bytes
    return solver.solve(smallest + int(share * max(0, plain - smallest))).schedule


def _figures_of_one(problem: Problem, schedule: Schedule, part: Part) -> PartFigures:
    """Return an operation's own figures; what it makes and nobody reads is workspace."""
    (p,) = part.runs(schedule)
    operation = problem.operations[p]
    results = ends_of(problem, schedule, part).results
    unread = sum(problem.values[v].nbytes for v in operation.outputs if v not in results)
    return PartFigures(operation.time_us, operation.workspace_bytes + unread)
