"""Operations that fuse move together: the same runs, within the budget, and never illegal."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import problems

from remat_gen.solver.compiled.gather import gathered
from remat_gen.solver.law.problem import Held, Operation, Problem, Value
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Free, Run, Schedule, Segment
from remat_gen.solver.solve import Solver


def _step(u: int) -> tuple[Problem, Schedule]:
    """up -> u; backward: gelu again -> g; dw: g -> w; d_gelu: u -> d; dx: d -> x."""
    problem = Problem(
        (
            Operation("up", 1.0, 0, (), (0,), False),
            Operation("gelu", 1.0, 0, (0,), (1,), False),
            Operation("dw", 1.0, 0, (1,), (2,), True),
            Operation("d_gelu", 1.0, 0, (0,), (3,), True),
            Operation("dx", 1.0, 0, (3,), (4,), True),
        ),
        (Value("u", u), Value("g", 10), Value("w", 1, Held.SEGMENT), Value("d", 10), Value("x", 1)),
    )
    forward = Segment(0, False, (Run(0), Run(1), Free(1)))
    steps = (Run(1), Run(2), Free(1), Run(3), Free(0), Run(4), Free(3), Free(4))
    return problem, Schedule((forward, Segment(0, True, steps)))


FUSIBLE = (False, True, False, True, False)


def _runs(schedule: Schedule) -> list[list[int]]:
    segments = (segment.steps for segment in schedule.segments)
    return [[s.operation for s in steps if isinstance(s, Run)] for steps in segments]


def test_a_gradient_joins_the_re_run_that_reads_the_same() -> None:
    problem, schedule = _step(10)
    moved = gathered(problem, schedule, FUSIBLE, 40)
    assert _runs(moved) == [[0, 1], [1, 3, 2, 4]]
    assert replay(problem, moved).peak_bytes > replay(problem, schedule).peak_bytes


def test_it_stays_where_the_budget_is_too_small() -> None:
    problem, schedule = _step(10)
    enough = replay(problem, schedule).peak_bytes
    assert gathered(problem, schedule, FUSIBLE, enough) == schedule


@settings(max_examples=150, deadline=None)
@given(problem=problems(), share=st.floats(0, 1), more=st.floats(1, 1.5), seed=st.integers(0, 99))
def test_the_same_runs_within_the_budget(
    problem: Problem, share: float, more: float, seed: int
) -> None:
    solver = Solver(problem, "rotor")
    smallest, plain = solver.smallest_budget().nbytes, solver.plain.peak_bytes
    schedule = solver.solve(smallest + int(share * max(0, plain - smallest))).schedule
    chance = Random(seed)
    fusible = [chance.random() < 0.5 and not o.ordered for o in problem.operations]
    budget = int(replay(problem, schedule).peak_bytes * more)
    moved = gathered(problem, schedule, fusible, budget)
    assert replay(problem, moved).peak_bytes <= budget
    assert list(map(sorted, _runs(moved))) == list(map(sorted, _runs(schedule)))
