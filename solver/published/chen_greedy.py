"""Strategy `chen-greedy`: a new segment whenever the current one holds more than b bytes.

Source: Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, "Training Deep Nets with Sublinear
Memory Cost", 2016 (arXiv:1604.06174), algorithm 3 and appendix A: walk forward, sum the bytes that
operations make, cut at the next articulation point once the sum exceeds b, and search b over a
grid. The quickest of the grid's schedules within the budget is taken. A bare graph without backward
flags has no forward graph to cut.
"""

from __future__ import annotations

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.published.articulation import (
    Cut,
    articulation_cuts,
    dropped_between,
    forward_vertices,
)
from remat_gen.solver.published.candidate_judge import Judge
from remat_gen.solver.published.local_forwards import all_local_forwards, droppable_values

GRID = {Effort.QUICK: 30, Effort.NORMAL: 150, Effort.THOROUGH: 1000}
"""Thresholds b that are tried: all bytes divided by 1, 2, 3, …"""


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return the quickest schedule of the grid within the budget."""
    judge = Judge(problem, budget_bytes, on_better)
    made = bytes_by_vertex(problem)
    cuts = articulation_cuts(problem)
    thresholds = [sum(made.values()) // parts for parts in range(1, GRID[effort] + 1)]
    chosen = dict.fromkeys(tuple(greedy_cuts(made, cuts, b)) for b in thresholds)
    dropped = [frozenset[int](), *(dropped_between(problem, some) for some in chosen)]
    judge.offer_all(all_local_forwards(problem, dropped))
    return judge.found()


def bytes_by_vertex(problem: Problem) -> dict[int, int]:
    """Return for each forward operation that may run again the bytes that backward may need."""
    droppable = droppable_values(problem)
    return {
        p: sum(problem.values[v].nbytes for v in problem.operations[p].outputs if v in droppable)
        for p in forward_vertices(problem)
    }


def greedy_cuts(made: dict[int, int], cuts: list[Cut], threshold: int) -> list[Cut]:
    """Cut at each articulation point behind which more than `threshold` bytes have gathered."""
    cut_behind = {cut.position - 1: cut for cut in cuts}
    gathered, chosen = 0, []
    for p, nbytes in made.items():
        gathered += nbytes
        if gathered > threshold and p in cut_behind:
            chosen.append(cut_behind[p])
            gathered = 0
    return chosen
