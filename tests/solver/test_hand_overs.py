"""Gradients that leave in the middle of a block's backward: when, and what is there then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from remat_gen.solver.law.hand_overs import LARGE_BYTES, hand_overs, waiting_gradients
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment, Step

SMALL, LARGE = 10, LARGE_BYTES


def _problem(*sizes: int) -> Problem:
    """One block: f0 makes x; each size is a backward operation, its gradient, or 0 for none."""
    gradients = [Value(f"w{i}", n, Held.SEGMENT, leaves=True) for i, n in enumerate(sizes)]
    chain = [Value(f"d{i}", 1) for i in range(len(sizes) + 1)]
    n = len(sizes)
    backward = [
        Operation(f"g{i}", 1.0, 0, (n + 1 + i,), (n + 2 + i, *((i,) * bool(size))), True)
        for i, size in enumerate(sizes)
    ]
    x, given = Value("x", 100), replace(chain[0], held=Held.SEGMENT)
    values = (*gradients, x, given, *chain[1:])
    forward = Operation("f0", 1.0, 0, (), (n,), False)
    return Problem((forward, *backward), values, given=(n + 1,))


def _steps(problem: Problem) -> list[Step]:
    n = len(problem.operations) - 1
    steps: list[Step] = []
    for i in range(n):
        steps += [Run(i + 1), *([Free(n + 1 + i)] if i else [])]
    return [*steps, Free(2 * n + 1), Free(n)]


def _leaves_before(problem: Problem) -> list[int]:
    steps = _steps(problem)
    return sorted(s.operation for i in hand_overs(problem, steps) if isinstance(s := steps[i], Run))


@pytest.mark.parametrize(
    ("sizes", "before"),
    [
        ((LARGE, 0, LARGE), [2]),
        ((LARGE, LARGE, 0, LARGE, 0), [3]),  # what follows each other leaves together
        ((LARGE, SMALL, 0, LARGE), [3]),  # a bias with its weight
        ((SMALL, 0, LARGE, 0, LARGE), [4]),  # a small one waits
        ((LARGE, 0, 0), []),  # none that is large is to come: it leaves as the block ends
        ((LARGE, 0, SMALL, 0), []),
        ((LARGE - 1, 0, LARGE - 1, 0), []),
    ],
)
def test_where_gradients_leave(sizes: tuple[int, ...], before: list[int]) -> None:
    assert _leaves_before(_problem(*sizes)) == before


def test_a_gradient_waits_while_its_parameter_is_read() -> None:
    problem = _problem(LARGE, SMALL, 0, 0, LARGE)
    steps = _steps(problem)
    operations = list(problem.operations)
    operations[3] = replace(operations[3], keeps=(0,))  # the first one's parameter
    kept = replace(problem, operations=tuple(operations))
    by_run = [
        {s.operation: sorted(gradients)}
        for p in (problem, kept)
        for i, gradients in hand_overs(p, steps).items()
        if isinstance(s := steps[i], Run)
    ]
    assert by_run == [{3: [0, 1]}, {4: [0, 1]}]
    operations[3] = replace(operations[3], keeps=())
    operations[5] = replace(operations[5], keeps=(0,))
    assert hand_overs(replace(problem, operations=tuple(operations)), steps) == {}
    at = [replay(p, _schedule(p)).timeline[3].nbytes for p in (problem, kept)]
    assert at[1] == at[0] + LARGE + SMALL


def _schedule(problem: Problem) -> Schedule:
    backward = Segment(0, True, tuple(_steps(problem)))
    return Schedule((Segment(0, False, (Run(0),)), backward))


def test_it_waits_for_another_block_that_reads_its_parameter() -> None:
    problem = _problem(LARGE, 0, LARGE, 0)
    steps = _steps(problem)
    operations = list(problem.operations)
    operations[4] = replace(operations[4], keeps=(0,))
    kept = replace(problem, operations=tuple(operations))
    (forward, backward) = _schedule(problem).segments
    cut = next(i for i, step in enumerate(steps) if step == Run(3))
    two = Schedule(
        (
            forward,
            Segment(1, False, ()),
            Segment(1, True, backward.steps[:cut]),
            Segment(0, True, backward.steps[cut:]),
        )
    )
    assert waiting_gradients(problem, two) == {}
    assert waiting_gradients(kept, two) == {0: 3}
    apart = [m.nbytes for m in replay(problem, two).timeline]
    longer = [m.nbytes for m in replay(kept, two).timeline]
    assert [b - a for a, b in zip(apart, longer, strict=True)] == [0, 0, 0, LARGE, LARGE]


def test_what_has_left_is_not_there() -> None:
    problem = _problem(SMALL, LARGE, 0, LARGE)
    judged = replay(problem, _schedule(problem))
    base = 100 + 1  # x and the given gradient
    assert [m.nbytes for m in judged.timeline[1:]] == [
        base + SMALL + 1,
        base + SMALL + LARGE + 2,
        base + 2,
        base + LARGE + 2,
    ]


def test_without_grad_all_stay_and_are_no_part_of_the_peak() -> None:
    problem = _problem(LARGE, 0, LARGE)
    judged = replay(problem, _schedule(problem), keep_gradients=True)
    assert judged.timeline[-1].resident >= 2 * LARGE
    assert judged.peak_bytes == judged.timeline[-1].nbytes - 2 * LARGE


def test_what_somebody_reads_stays() -> None:
    problem = _problem(LARGE, 0, LARGE)
    values = tuple(replace(v, leaves=False) for v in problem.values)
    kept = replace(problem, values=values)
    assert hand_overs(kept, _steps(kept)) == {}
    assert (
        replay(kept, _schedule(kept)).peak_bytes
        == replay(problem, _schedule(problem)).peak_bytes + LARGE
    )
