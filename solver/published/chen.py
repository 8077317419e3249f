"""Strategies `chen-sqrt` and `chen-greedy`: segments of a chain, each run forward once more.

Source: Tianqi Chen, Bing Xu, Chiyuan Zhang and Carlos Guestrin, "Training Deep Nets with Sublinear
Memory Cost", 2016 (arXiv:1604.06174).

- *sqrt*: a chain of n layers is cut into √n segments of equal length, and only what crosses the
  cuts is retained; on other graphs at the articulation points nearest to them. It knows no budget.
- *greedy* (algorithm 3 and appendix A): walk forward, sum the bytes that operations make, cut at
  the next articulation point once the sum exceeds b, and search b over a grid.

A bare graph without backward flags has no forward graph to cut.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import isqrt

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort
from remat_gen.solver.published.local_forwards import (
    articulation_cuts,
    droppable_values,
    forward_vertices,
    searching,
)

GRID = {Effort.QUICK: 30, Effort.NORMAL: 150, Effort.THOROUGH: 1000}
"""Thresholds b that are tried: all bytes divided by 1, 2, 3, …"""


def _sqrt_choices(problem: Problem, _effort: Effort) -> tuple[frozenset[int], ...]:
    cuts = articulation_cuts(problem)
    crossing = (cuts[position] for position in equal_cuts(problem, cuts))
    return (droppable_values(problem).difference(*crossing),)


sqrt_search = searching(_sqrt_choices)


def equal_cuts(problem: Problem, cuts: Collection[int]) -> list[int]:
    """Return the articulation points nearest to √n equal parts of the forward operations."""
    positions = forward_vertices(problem)
    n = len(positions)
    behind = {p + 1: k + 1 for k, p in enumerate(positions)}  # vertices before a position
    parts = max(1, isqrt(n))
    if not cuts:
        return []
    nearest = [
        min(cuts, key=lambda position: (abs(behind[position] * parts - i * n), position))
        for i in range(1, parts)
    ]
    return list(dict.fromkeys(nearest))


def _greedy_choices(problem: Problem, effort: Effort) -> Iterator[frozenset[int]]:
    cuts, droppable = articulation_cuts(problem), droppable_values(problem)
    made = {
        p: sum(problem.values[v].nbytes for v in problem.operations[p].outputs if v in droppable)
        for p in forward_vertices(problem)
    }
    thresholds = [sum(made.values()) // parts for parts in range(1, GRID[effort] + 1)]
    for chosen in dict.fromkeys(tuple(greedy_cuts(made, cuts, b)) for b in thresholds):
        yield droppable.difference(*(cuts[position] for position in chosen))


greedy_search = searching(_greedy_choices)


def greedy_cuts(made: dict[int, int], cuts: Collection[int], threshold: int) -> list[int]:
    """Cut at each articulation point behind which more than `threshold` bytes have gathered."""
    gathered, chosen = 0, []
    for p, nbytes in made.items():
        gathered += nbytes
        if gathered > threshold and p + 1 in cuts:
            chosen.append(p + 1)
            gathered = 0
    return chosen
