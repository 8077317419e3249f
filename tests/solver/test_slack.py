"""Which re-runs may be left out is told by what is left of the budget, and in which order."""

from __future__ import annotations

import numpy as np
from solver_problems import gpt_like

from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import per_layer
from remat_gen.solver.improve.memory_measure import measured
from remat_gen.solver.improve.ruin_and_recreate import removable
from remat_gen.solver.improve.run_timeline import ProblemArrays, Timeline, timeline_of


def test_what_may_fit_comes_by_falling_time() -> None:
    problem = gpt_like(3)
    timeline = timeline_of(ProblemArrays(problem), per_layer(problem, partition(problem))).pruned()
    slack = 2**40 - measured(timeline).inside
    found = removable(timeline, slack)
    assert len(found) == (~timeline.firsts).sum()
    times = [problem.operations[int(timeline.runs[x])].time_us for x, _ in found]
    assert times == sorted(times, reverse=True)
    assert len({rerun for _, rerun in found}) == len(found)
    needless = {(x, rerun) for x, rerun in found if not needs_memory(timeline, x)}
    assert needless <= set(removable(timeline, np.zeros_like(slack))) < set(found)


def needs_memory(timeline: Timeline, x: int) -> bool:
    operation = timeline.arrays.problem.operations[int(timeline.runs[x])]
    sizes = timeline.arrays.sizes
    freed = sum(sizes[u] for u in operation.inputs if timeline.arrays.free[u])
    return sum(sizes[v] for v in operation.outputs) > freed
