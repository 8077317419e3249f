"""Strategy `chen-sqrt`: √n segments of equal length, each run forward once more.

Source: Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, "Training Deep Nets with Sublinear
Memory Cost", 2016 (arXiv:1604.06174). The paper cuts a chain of n layers into √n segments and
retains only what crosses the cuts: O(√n) memory for one more forward. On other graphs the cuts are
the articulation points nearest to the equal parts; without any, nothing can be cut.

It knows no budget: there is one schedule, or nothing re-run where that fits. A bare graph without
backward flags has no forward graph to cut.
"""

from __future__ import annotations

from math import isqrt

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.published.articulation import (
    Cut,
    articulation_cuts,
    dropped_between,
    forward_vertices,
)
from remat_gen.solver.published.candidate_judge import Judge
from remat_gen.solver.published.local_forwards import all_local_forwards


def search(
    problem: Problem,
    budget_bytes: int,
    effort: Effort = Effort.NORMAL,
    on_better: Incumbent | None = None,
) -> Found:
    """Return the √n schedule if it fits the budget; `effort` makes no difference."""
    judge = Judge(problem, budget_bytes, on_better)
    dropped = dropped_between(problem, equal_cuts(problem))
    judge.offer_all(all_local_forwards(problem, (frozenset[int](), dropped)))
    return judge.found()


def equal_cuts(problem: Problem) -> list[Cut]:
    """Return the articulation points nearest to √n equal parts of the forward operations."""
    positions = forward_vertices(problem)
    n = len(positions)
    behind = {p + 1: k + 1 for k, p in enumerate(positions)}  # vertices before a position
    cuts = articulation_cuts(problem)
    parts = max(1, isqrt(n))
    if not cuts:
        return []
    nearest = [
        min(cuts, key=lambda cut: (abs(behind[cut.position] * parts - i * n), cut.position))
        for i in range(1, parts)
    ]
    return list(dict.fromkeys(nearest))
