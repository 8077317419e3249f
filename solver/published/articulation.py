"""The chain in a forward graph: positions that a single storage crosses.

What Chen et al. (2016) and Griewank & Walther (2000) need, and what Checkmate's authors gave their
baselines: articulation points. Only values count that backward may need and a second run gives
back; all others are retained in any case.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published.local_forwards import droppable_values


@dataclass(frozen=True, slots=True)
class Cut:
    """A position between forward operations, and the values that cross it: at most one."""

    position: int
    values: tuple[int, ...]


def forward_vertices(problem: Problem) -> tuple[int, ...]:
    """Return the forward operations that may have to run again."""
    droppable = droppable_values(problem)
    return tuple(
        p
        for p in range(problem.forward_count)
        if not droppable.isdisjoint(problem.operations[p].outputs)
    )


def articulation_cuts(problem: Problem) -> list[Cut]:
    """Return a cut behind each forward vertex but the last that at most one value crosses."""
    droppable = droppable_values(problem)
    vertices = forward_vertices(problem)
    last_read = {v: p for p in vertices for v in problem.operations[p].inputs if v in droppable}
    cuts: list[Cut] = []
    crossing: set[int] = set()
    for p in vertices[:-1]:
        crossing.update(v for v in problem.operations[p].outputs if v in last_read)
        crossing = {v for v in crossing if last_read[v] > p}
        if len(crossing) <= 1:
            cuts.append(Cut(p + 1, tuple(crossing)))
    return cuts


def dropped_between(problem: Problem, cuts: Iterable[Cut]) -> frozenset[int]:
    """Return the values that are not retained if those that cross the cuts are."""
    return droppable_values(problem) - {v for cut in cuts for v in cut.values}
