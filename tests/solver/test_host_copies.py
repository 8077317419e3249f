"""Values that go to the host: time and memory of a schedule, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
from event_simulation import simulate
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import problems

from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Held, HostLink, Operation, Problem, Value, in_units
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Segment, Send, Step

LINK = HostLink(2.0)


def _problem(link: HostLink | None = LINK, *, travels: bool = True) -> Problem:
    """f0 -> a (10), f1: a -> b (6), g1: b -> c (2), g0: a, c -> w (1); 10 us each."""
    return Problem(
        (
            Operation("f0", 10.0, 0, (), (0,), False),
            Operation("f1", 10.0, 0, (0,), (1,), False),
            Operation("g1", 10.0, 0, (1,), (2,), True),
            Operation("g0", 10.0, 0, (0, 2), (3,), True),
        ),
        (
            Value("a", 10, travels=travels),
            Value("b", 6, travels=travels),
            Value("c", 2, travels=travels),
            Value("w", 1, Held.STEP, travels=travels),
        ),
        (),
        link=link,
    )


def _schedule(forward: list[Step], backward: list[Step]) -> Schedule:
    return Schedule((Segment(0, False, tuple(forward)), Segment(0, True, tuple(backward))))


def _sent(*, after_f1: list[Step], backward: list[Step]) -> Schedule:
    return _schedule([Run(0), Send(0), Run(1), *after_f1], backward)


END: list[Step] = [Run(3), Free(0), Free(2)]
REST: list[Step] = [Run(2), Free(1), *END]


def test_copies_run_beside_what_is_computed() -> None:
    schedule = _sent(after_f1=[Free(0)], backward=[Fetch(0), Run(2), Free(1), *END])
    judged = replay(_problem(), schedule)
    # a goes out from 10 to 15, beside f1; it comes back from 20 to 25, beside g1
    assert (judged.time_us, judged.waits_us) == (40.0, 0.0)
    assert judged.travelled == (0,)


def test_memory_is_held_until_it_is_freed_and_from_where_it_is_fetched() -> None:
    late = _sent(after_f1=[Free(0)], backward=[Run(2), Free(1), Fetch(0), *END])
    inside = [moment.nbytes for moment in replay(_problem(), late).timeline]
    assert inside == [10, 16, 8, 13]
    early = _sent(after_f1=[Free(0)], backward=[Fetch(0), Run(2), Free(1), *END])
    assert [moment.nbytes for moment in replay(_problem(), early).timeline] == [10, 16, 18, 13]


def test_what_needs_a_copy_waits_for_it() -> None:
    late = _sent(after_f1=[Free(0)], backward=[Run(2), Free(1), Fetch(0), *END])
    assert replay(_problem(), late).waits_us == 5.0  # g0 reads a, 5 us after it was asked for
    slow = replay(_problem(HostLink(0.5)), late)  # 20 us each way: out until 30, back from 30
    assert (slow.time_us, slow.waits_us) == (20 + 10 + 10 + 20 + 10, 30.0)
    assert slow.peak_bytes == replay(_problem(), late).peak_bytes  # memory goes by the schedule


def test_copies_of_one_direction_queue() -> None:
    schedule = _schedule(
        [Run(0), Send(0), Run(1), Send(1), Free(1), Free(0)],
        [Fetch(1), Fetch(0), Run(2), Free(1), *END],
    )
    judged = replay(_problem(HostLink(1.0, start_us=4.0)), schedule)
    # a out 10..24, b out 24..34; b back 34..44, a back 44..58; g1 44..54, g0 58..68
    assert (judged.time_us, judged.waits_us) == (68.0, 14.0 + 10.0 + 4.0)


def test_a_value_that_is_fetched_and_freed_waits_too() -> None:
    problem = _problem()
    schedule = _schedule(
        [Run(0), Run(1), Send(1), Free(1)],
        [Fetch(1), Run(2), Free(1), Run(3), Free(0), Free(2)],
    )
    assert replay(problem, schedule).waits_us == 3.0 + 3.0


def test_a_value_is_fetched_any_number_of_times() -> None:
    forward: list[Step] = [Run(0), Send(0), Run(1), Free(0)]
    again = _schedule(forward, [Fetch(0), Free(0), Run(2), Free(1), Fetch(0), *END])
    judged = replay(_problem(), again)
    assert (judged.travelled, judged.waits_us) == ((0,), 5.0 + 5.0)


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        ([Send(0), Run(0), Run(1)], REST, "not there"),
        ([Run(0), Send(0), Send(0), Run(1)], REST, "twice"),
        ([Run(0), Run(1)], [Send(0), *REST], "in backward"),
        ([Run(0), Run(1)], [Fetch(0), *REST], "where it still is"),
        ([Run(0), Send(0), Run(1), Free(0), Fetch(0)], REST, "in forward"),
        ([Run(0), Run(1), Free(1)], [Fetch(1), *REST], "without being sent"),
        ([Run(0), Run(1)], [Run(2), Free(1), Run(3), Send(3)], "w does not travel"),
        ([Run(0), Send(0), Run(1)], [Run(2), Free(1), *END], "a sent and never fetched"),
    ],
)
def test_what_is_refused(forward: list[Step], backward: list[Step], message: str) -> None:
    with pytest.raises(IllegalScheduleError, match=message):
        replay(_problem(), _schedule(forward, backward))


@pytest.mark.parametrize("problem", [_problem(None), _problem(travels=False)])
def test_nothing_travels_that_may_not(problem: Problem) -> None:
    schedule = _sent(after_f1=[Free(0)], backward=[Fetch(0), Run(2), Free(1), *END])
    with pytest.raises(IllegalScheduleError, match="a does not travel"):
        replay(problem, schedule)


def test_units_leave_times_as_they_are() -> None:
    problem = replace(
        _problem(), values=tuple(replace(v, nbytes=v.nbytes * 8) for v in _problem().values)
    )
    scaled, unit = in_units(problem)
    schedule = _sent(after_f1=[Free(0)], backward=[Run(2), Free(1), Fetch(0), *END])
    assert unit == 8
    assert replay(scaled, schedule).time_us == replay(problem, schedule).time_us


@st.composite
def sent_schedules(draw: st.DrawFn) -> tuple[Problem, Schedule]:
    """Draw a problem, its plain schedule, and values that travel from and to anywhere."""
    problem = draw(problems(hard=False))
    link = HostLink(
        bytes_per_us=1 / draw(st.integers(1, 5)), start_us=float(draw(st.integers(1, 3)))
    )
    values = tuple(replace(v, travels=v.held is Held.FREE, held=Held.FREE) for v in problem.values)
    problem = replace(problem, values=values, link=link)
    n = problem.forward_count
    runs = tuple(range(len(problem.operations)))
    schedule = to_schedule(problem, Program((runs[:n], runs[n:])))
    forward, backward = (list(segment.steps) for segment in schedule.segments)
    for v in draw(st.permutations(sorted(problem.producers()))):
        _draw_copy(draw, problem, v, forward, backward)
    return problem, _schedule(forward, backward)


def _draw_copy(
    draw: st.DrawFn, problem: Problem, v: int, forward: list[Step], backward: list[Step]
) -> None:
    def touched(step: Step, *, read: bool) -> bool:
        if not isinstance(step, Run):
            return False
        operation = problem.operations[step.operation]
        return v in operation.inputs or (not read and v in operation.outputs)

    firsts = [i for i, step in enumerate(backward) if touched(step, read=True)]
    made = [i for i, step in enumerate(forward) if touched(step, read=False)]
    if not firsts or not made or Free(v) in forward or draw(st.booleans()):
        return
    backward.insert(draw(st.integers(0, firsts[0])), Fetch(v))
    free = draw(st.integers(made[-1] + 1, len(forward)))
    forward.insert(free, Free(v))
    forward.insert(draw(st.integers(made[0] + 1, free)), Send(v))


@settings(max_examples=300, deadline=None)
@given(sent_schedules())
def test_figures_are_those_of_a_simulation_tick_by_tick(drawn: tuple[Problem, Schedule]) -> None:
    problem, schedule = drawn
    judged, seen = replay(problem, schedule), simulate(problem, schedule)
    assert judged.time_us == seen.ticks
    assert judged.peak_bytes == max(m.nbytes for m in judged.timeline) <= seen.peak
    assert judged.waits_us == judged.time_us - sum(o.time_us for o in problem.operations)
