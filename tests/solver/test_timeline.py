"""Timelines say of a program what walking over its runs says."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like
from test_liveness import programs

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.improve.memory_measure import measured
from remat_gen.solver.improve.problem_arrays import MADE, READ, ProblemArrays
from remat_gen.solver.improve.run_timeline import timeline_of
from remat_gen.solver.law.liveness import prune
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program


def _left_out(problem: Problem, program: Program, position: int) -> Program:
    return prune(problem, program.replaced({position: ()}))


@given(programs())
@settings(max_examples=200, deadline=None)
def test_pruned_is_what_walking_back_keeps(drawn: tuple[Problem, Program]) -> None:
    problem, program = drawn
    timeline = timeline_of(ProblemArrays(problem), program)
    assert timeline.program() == program
    assert timeline.pruned().program() == prune(problem, program)


@given(programs(), st.data())
@settings(max_examples=200, deadline=None)
def test_without_a_rerun_goes_what_only_served_it(
    drawn: tuple[Problem, Program], data: st.DataObject
) -> None:
    problem, program = drawn
    timeline = timeline_of(ProblemArrays(problem), program).pruned()
    again = [x for x, first in enumerate(timeline.firsts.tolist()) if not first]
    if not again:
        return
    position = data.draw(st.sampled_from(again))
    less = timeline.without([position])
    expected = _left_out(problem, timeline.program(), position)
    assert less.program() == expected
    figures = measured(less)
    whole = measured(timeline_of(ProblemArrays(problem), expected))
    assert figures.inside.tolist() == whole.inside.tolist()


@given(programs(), st.data())
@settings(max_examples=200, deadline=None)
def test_what_is_there_is_read_later(drawn: tuple[Problem, Program], data: st.DataObject) -> None:
    problem, program = drawn
    timeline = timeline_of(ProblemArrays(problem), program)
    runs = program.flat()
    at = data.draw(st.integers(0, len(runs) - 1))
    v = data.draw(
        st.sampled_from([v for v in range(len(problem.values)) if v not in problem.given])
    )
    expected = False
    for p in runs[at:]:
        if v in problem.operations[p].inputs or v in problem.operations[p].outputs:
            expected = v in problem.operations[p].inputs
            break
    assert timeline.is_there(v, at) == expected


def test_inserted_runs_stand_in_the_segment_they_precede() -> None:
    problem = gpt_like(2)
    program = per_layer(problem, partition(problem))
    timeline = timeline_of(ProblemArrays(problem), program)
    at = timeline.length - 1
    more = timeline.inserted(at, (0, 1)).program()
    runs = program.flat()
    assert more.flat() == [*runs[:at], 0, 1, runs[at]]
    grown = [len(b) - len(a) for a, b in zip(program.segments, more.segments, strict=True)]
    assert grown[int(timeline.segments[at])] == 2
    assert sum(grown) == 2


@given(programs(), st.data())
@settings(max_examples=200, deadline=None)
def test_a_moved_run_stands_where_it_was_sent(
    drawn: tuple[Problem, Program], data: st.DataObject
) -> None:
    problem, program = drawn
    timeline = timeline_of(ProblemArrays(problem), program)
    places = st.integers(0, timeline.length - 1)
    y, z = data.draw(places), data.draw(places)
    expected = list(program.flat())
    expected.insert(z, expected.pop(y))
    moved = timeline.moved(y, z)
    assert moved.runs.tolist() == moved.run_list == expected
    assert moved.segments.tolist() == timeline.segments.tolist()


@given(programs())
@settings(max_examples=200, deadline=None)
def test_a_stay_begins_with_what_made_it(drawn: tuple[Problem, Program]) -> None:
    problem, program = drawn
    timeline = timeline_of(ProblemArrays(problem), program)
    made: dict[int, int] = {}
    turn = sum(len(segment) for segment in program.segments[: timeline.first_backward])
    for x, p in enumerate(program.flat()):
        for v in problem.operations[p].inputs:
            stay = timeline.stay(v, x, READ)
            assert timeline.values[stay] == v
            assert timeline.made_at[stay] == made.get(v, turn)
        for v in problem.operations[p].outputs:
            made[v] = x
            assert timeline.made_at[timeline.stay(v, x, MADE)] == x
