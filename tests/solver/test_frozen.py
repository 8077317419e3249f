"""What is decided is an operation of its own; what is free can be searched beside it."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from solver_problems import problems

from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.stable.warm_start import frozen
from remat_gen.solver.stages.exact_search import search


def judged(problem: Problem, runs: tuple[int, ...]) -> Replay:
    """Replay runs in one block."""
    n = problem.forward_count
    return replay(problem, to_schedule(problem, Program((runs[:n], runs[n:]))))


@st.composite
def decided(draw: st.DrawFn) -> tuple[Problem, tuple[int, ...]]:
    """Draw a problem and legal runs of it: any re-runs anywhere in backward."""
    problem = draw(problems(hard=False))
    n = problem.forward_count
    runs = list(range(n))
    for t in range(n, len(problem.operations)):
        runs += sorted(draw(st.sets(st.integers(0, n - 1), max_size=3)))
        runs.append(t)
    program = prune(problem, Program((tuple(runs[:n]), tuple(runs[n:]))))
    return problem, tuple(program.flat())


@given(decided())
def test_all_decided_costs_the_same(case: tuple[Problem, tuple[int, ...]]) -> None:
    problem, runs = case
    left, original = frozen(problem, runs, ())
    mine = judged(left, tuple(range(len(left.operations))))
    theirs = judged(problem, runs)
    assert (mine.peak_bytes, mine.time_us) == (theirs.peak_bytes, theirs.time_us)
    assert original == runs
    assert not any(operation.rerunnable for operation in left.operations)


@given(decided(), st.data())
def test_only_what_is_free_changes(
    case: tuple[Problem, tuple[int, ...]], data: st.DataObject
) -> None:
    problem, runs = case
    n = problem.forward_count
    free = data.draw(st.sets(st.integers(0, n - 1)))
    left, original = frozen(problem, runs, free)
    budget = judged(problem, runs).peak_bytes
    found = search(left, budget, Effort.QUICK)
    if found.runs is None:
        return
    new = tuple(original[p] for p in found.runs)
    again, before = Counter(new[n:]), Counter(runs[n:])
    assert all(again[p] == before[p] for p in range(n) if p not in free)
    assert judged(problem, new).peak_bytes <= budget
