"""Strategies `checkmate`, the least time in the given order, and `checkmate-lp`, its relaxation.

Source: Paras Jain, Ajay Jain, Aniruddha Nrusimha, Amir Gholami, Pieter Abbeel, Kurt Keutzer, Ion
Stoica and Joseph E. Gonzalez, "Checkmate: Breaking the Memory Wall with Optimal Tensor
Rematerialization", MLSys 2020 (arXiv:1910.02653), with its "frontier-advancing stages": each ends
with the first run of the next operation. Between two of them re-runs stand in any order here, in
the paper in the given one. The program over stages is ours (`stages`), which counts memory where it
is tight alone, and is solved by HiGHS within limits of work, never of time.

The second is the paper's section 5: relax the program, round S (what is carried into each stage),
and run again the least that this S needs; rounding may exceed the budget, so the relaxation gets
less than the budget. As in the deterministic variant S is rounded at thresholds, and the quickest
result within the real budget is taken. Memory is counted at the end of each stage; of large graphs
every so many operations end one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from remat_gen.solver.blocks.judged_runs import IncumbentSchedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.stages import exact_search
from remat_gen.solver.stages.first_run_order import FirstRuns, first_runs
from remat_gen.solver.stages.plan_runs import expand
from remat_gen.solver.stages.stage_program import StagePlan, relaxed_stages
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import mask_of

CLASS = "schedules in stages of the given order"
SIZE = {Effort.QUICK: 5_000, Effort.NORMAL: 20_000, Effort.THOROUGH: 60_000}
"""Stages times operations of the relaxation, at most."""
THRESHOLDS = tuple(tenths / 10 for tenths in range(1, 10))
HEADROOMS = (0.1, 0.0)  # shares of the budget held back from the relaxation: the paper's, and none


def search(incumbent: IncumbentSchedule, effort: Effort) -> Found:
    """Return the quickest schedule in stages within the budget, and a bound on those."""
    problem, hear = in_given_order(incumbent.problem), incumbent.on_better
    found = exact_search.search(problem, incumbent.budget_bytes, effort, on_better=hear)
    return replace(found, bound_for=CLASS)


def in_given_order(problem: Problem) -> Problem:
    """Return the problem whose operations run first in the order in which they stand."""
    operations = tuple(replace(operation, ordered=True) for operation in problem.operations)
    return replace(problem, operations=operations)


def lp_search(incumbent: IncumbentSchedule, effort: Effort) -> Found:
    """Return the quickest rounded schedule within the budget."""
    graph = BitGraph(in_given_order(incumbent.problem))
    order = first_runs(graph)
    first = incumbent.problem.forward_count
    step = -(-(graph.count - first) * graph.count // SIZE[effort])
    stages = tuple(range(graph.count - 1, first - 1, -step))[::-1]
    for headroom in HEADROOMS:
        carried = relaxed_stages(graph, order, int(incumbent.budget_bytes * (1 - headroom)), stages)
        if carried is not None:
            incumbent.offer_all(rounded(graph, order, stages, carried))
    return replace(incumbent.found(), bound_for=CLASS)


def rounded(
    graph: BitGraph, order: FirstRuns, stages: tuple[int, ...], carried: list[list[float]]
) -> Iterator[list[int]]:
    """Yield the runs for S rounded at each threshold, with the least re-runs that S needs.

    `carried[i]` is S of each value in the i-th stage; what cannot be made again is always carried.
    """
    runs = tuple(mask_of(range(a + 1, b + 1)) for a, b in pairwise((-1, *stages, graph.count - 1)))
    useful = [_useful(graph, mask_of(range(p + 1))) for p in stages]
    always = ~graph.made_by(graph.rerunnable)
    for threshold in THRESHOLDS:
        kept = [
            wanted & (always | mask_of(v for v, share in enumerate(shares) if share >= threshold))
            for wanted, shares in zip(useful, carried, strict=True)
        ]
        yield expand(graph, order, StagePlan(stages, runs, (0, *kept)))


def _useful(graph: BitGraph, done: int) -> int:
    """Return the values that have been made and that later runs may read."""
    phase = graph.phase(done)
    return phase.made & phase.useful
