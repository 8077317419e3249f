"""The memory model: what is counted, what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment, Step


def _problem(held: Held = Held.FREE) -> Problem:
    """f0 -> a (10), f1: a -> b (20), g1: d, b -> c (4), g0: c, a -> w (3, held)."""
    return Problem(
        (
            Operation("f0", 1.0, 5, (), (0,), False),
            Operation("f1", 2.0, 0, (0,), (1,), False),
            Operation("g1", 4.0, 0, (4, 1), (2,), True),
            Operation("g0", 8.0, 7, (2, 0), (3,), True),
        ),
        (
            Value("a", 10),
            Value("b", 20),
            Value("c", 4),
            Value("w", 3, held),
            Value("d", 1, Held.SEGMENT),
        ),
        (4,),
    )


def _schedule(forward: list[Step], backward: list[Step]) -> Schedule:
    return Schedule((Segment(0, False, tuple(forward)), Segment(0, True, tuple(backward))))


PLAIN = _schedule([Run(0), Run(1)], [Run(2), Free(1), Run(3), Free(2), Free(0), Free(3)])


def test_plain_figures() -> None:
    judged = replay(_problem(), PLAIN)
    assert [moment.nbytes for moment in judged.timeline] == [15, 30, 35, 25]
    assert [moment.resident for moment in judged.timeline] == [10, 30, 35, 18]
    assert (judged.peak_bytes, judged.peak_at, judged.time_us) == (35, 2, 15.0)


def test_a_rerun_costs_time_and_is_reported() -> None:
    schedule = _schedule(
        [Run(0), Run(1), Free(0)],
        [Run(2), Free(1), Run(0), Run(3), Free(2), Free(0), Free(3)],
    )
    judged = replay(_problem(), schedule)
    assert judged.reruns == (0,)
    assert judged.time_us == 16.0
    assert [moment.nbytes for moment in judged.timeline] == [15, 30, 25, 20, 25]


def test_a_rerun_of_what_is_there_makes_it_twice() -> None:
    schedule = _schedule(
        [Run(0), Run(1)], [Run(0), Run(2), Free(1), Run(3), Free(2), Free(0), Free(3)]
    )
    assert replay(_problem(), schedule).timeline[2].nbytes == 31 + 10 + 5


def test_held_values_are_released_by_segments() -> None:
    steps = [s for s in PLAIN.segments[1].steps if s != Free(3)]
    schedule = _schedule(list(PLAIN.segments[0].steps), steps)
    for held in (Held.SEGMENT, Held.STEP):
        assert replay(_problem(held), schedule).peak_bytes == 35
    with pytest.raises(IllegalScheduleError, match="w is held until the step ends"):
        replay(_problem(Held.STEP), PLAIN)
    with pytest.raises(IllegalScheduleError, match="w never freed"):
        replay(_problem(), schedule)


def test_keep_gradients_leaves_them_out_of_the_baseline() -> None:
    steps = [s for s in PLAIN.segments[1].steps if s != Free(3)]
    schedule = _schedule(list(PLAIN.segments[0].steps), steps)
    assert replay(_problem(Held.SEGMENT), schedule, keep_gradients=True).peak_bytes == 35 - 3


@pytest.mark.parametrize(
    ("forward", "backward", "message"),
    [
        ([Run(0), Free(0), Run(1)], [Run(2), Run(3)], "f1 needs a, which is not there"),
        ([Run(0), Run(1), Free(0), Free(0)], [Run(2), Run(3)], "a is freed but is not there"),
        ([Run(0)], [Run(1), Run(2), Run(3)], "f1 runs for the first time in backward"),
        ([Run(0), Run(1), Run(2)], [Run(3)], "g1 (needs d|belongs to backward)"),
        ([Run(0), Run(1)], [Run(2)], "some operation never runs"),
    ],
)
def test_illegal_schedules(forward: list[Step], backward: list[Step], message: str) -> None:
    with pytest.raises(IllegalScheduleError, match=message):
        replay(_problem(), _schedule(forward, backward))


def test_what_cannot_run_again_is_refused() -> None:
    problem = _problem()
    fixed = replace(problem.operations[0], rerunnable=False)
    problem = replace(problem, operations=(fixed, *problem.operations[1:]))
    schedule = _schedule([Run(0), Run(1), Free(0)], [Run(0), Run(2), Run(3)])
    with pytest.raises(IllegalScheduleError, match="f0 cannot run again"):
        replay(problem, schedule)


def test_segments_stand_in_order() -> None:
    with pytest.raises(IllegalScheduleError, match="segments are not those"):
        replay(_problem(), Schedule(PLAIN.segments[::-1]))


def _written_over() -> Problem:
    """g1 as above makes c (4), h: c -> e (4, over c), g0: e, a -> w."""
    problem = _problem()
    over = Operation("h", 1.0, 2, (2,), (5,), True, over=2)
    last = replace(problem.operations[3], inputs=(5, 0))
    return replace(
        problem,
        operations=(*problem.operations[:3], over, last),
        values=(*problem.values, Value("e", 4)),
    )


def test_what_is_written_over_is_not_there_twice() -> None:
    problem = _written_over()
    frees = [Free(2), Run(4), Free(5), Free(0), Free(3)]
    schedule = _schedule([Run(0), Run(1)], [Run(2), Free(1), Run(3), *frees])
    inside = [moment.nbytes for moment in replay(problem, schedule).timeline]
    assert inside == [15, 30, 35, 10 + 1 + 4 + 2, 25]
    plain = [moment.nbytes for moment in replay(problem.in_new_memory(), schedule).timeline]
    assert plain == [*inside[:3], inside[3] + 4, 25]


def test_what_is_freed_later_is_not_written_over() -> None:
    frees = [Run(4), Free(2), Free(5), Free(0), Free(3)]
    schedule = _schedule([Run(0), Run(1)], [Run(2), Free(1), Run(3), *frees])
    timeline = replay(_written_over(), schedule).timeline
    assert [moment.nbytes for moment in timeline] == [15, 30, 35, 21, 29]
