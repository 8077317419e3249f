"""A re-run is left out unmeasured only where measuring would say that nothing is gained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like
from test_liveness import programs

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.improve.memory_measure import measured
from remat_gen.solver.improve.problem_arrays import READ, ProblemArrays
from remat_gen.solver.improve.retain_more import removable, surely_over
from remat_gen.solver.improve.run_timeline import Timeline, timeline_of


def check(timeline: Timeline, budget: int) -> list[tuple[bool, bool]]:
    """Compare with measuring; return for each re-run whether it was seen, and whether it fits."""
    slack = budget - measured(timeline).inside
    assert slack.min(initial=0) >= 0
    found = []
    for x in [x for x, first in enumerate(timeline.firsts.tolist()) if not first]:
        over = surely_over(timeline, slack, x)
        less = timeline.without([x])
        fits = measured(less).peak_bytes <= budget
        assert not (over and fits)
        if goes_alone(timeline, x):
            assert fits != over
        found.append((over, fits))
    return found


def goes_alone(timeline: Timeline, x: int) -> bool:
    """Tell whether a re-run's inputs stay, and nothing held is touched."""
    operation = timeline.arrays.problem.operations[timeline.run_list[x]]
    touched = [timeline.arrays.free[v] for v in (*operation.inputs, *operation.outputs)]
    stays = [timeline.stay(u, x, READ) for u in operation.inputs]
    kept = [
        timeline.reads[s] > 1 or not timeline.from_run[s] or timeline.firsts[timeline.made_at[s]]
        for s in stays
    ]
    return all(touched) and all(kept)


@given(programs(), st.integers(0, 1000))
@settings(max_examples=300, deadline=None)
def test_what_is_surely_over_does_not_fit(drawn: object, more: int) -> None:
    problem, program = drawn  # type: ignore[misc]
    timeline = timeline_of(ProblemArrays(problem), program).pruned()
    check(timeline, measured(timeline).peak_bytes + more)


def test_a_gpt_with_all_kinds() -> None:
    problem = gpt_like(4)
    timeline = timeline_of(ProblemArrays(problem), per_layer(problem, partition(problem))).pruned()
    figures = measured(timeline)
    budgets = [figures.peak_bytes * percent // 100 for percent in (100, 120, 200)]
    seen = [kind for budget in budgets for kind in check(timeline, budget)]
    assert set(seen) == {(True, False), (False, False), (False, True)}


def test_what_may_fit_comes_by_falling_time() -> None:
    problem = gpt_like(3)
    timeline = timeline_of(ProblemArrays(problem), per_layer(problem, partition(problem))).pruned()
    slack = 2**40 - measured(timeline).inside
    found = removable(timeline, slack)
    assert len(found) == (~timeline.firsts).sum()
    times = [problem.operations[timeline.run_list[x]].time_us for x, _ in found]
    assert times == sorted(times, reverse=True)
    assert len({rerun for _, rerun in found}) == len(found)
    needless = {(x, rerun) for x, rerun in found if not needs_memory(timeline, x)}
    assert needless <= set(removable(timeline, np.zeros_like(slack))) < set(found)


def needs_memory(timeline: Timeline, x: int) -> bool:
    operation = timeline.arrays.problem.operations[timeline.run_list[x]]
    sizes = timeline.arrays.sizes
    freed = sum(sizes[u] for u in operation.inputs if timeline.arrays.free[u])
    return sum(sizes[v] for v in operation.outputs) > freed


def test_what_is_read_twice_is_measured() -> None:
    problem = gpt_like(2)
    doubled = replace(
        problem,
        operations=tuple(replace(o, inputs=o.inputs + o.inputs[:1]) for o in problem.operations),
    )
    program = per_layer(problem, partition(problem))
    timeline = timeline_of(ProblemArrays(doubled), program).pruned()
    slack = np.zeros(timeline.length, dtype=np.int64)
    again = [x for x, first in enumerate(timeline.firsts.tolist()) if not first]
    reading = [x for x in again if problem.operations[timeline.run_list[x]].inputs]
    assert reading
    assert not any(surely_over(timeline, slack, x) for x in reading)
