"""The chain in a forward graph: positions that a single storage crosses.

What Chen et al. (2016) and Griewank & Walther (2000) need, and what Checkmate's authors gave their
baselines: articulation points. Only values count that backward may need and a second run gives
back; all others are retained in any case.
"""

from __future__ import annotations

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published.local_forwards import droppable_values


def forward_vertices(problem: Problem) -> tuple[int, ...]:
    """Return the forward operations that may have to run again."""
    droppable = droppable_values(problem)
    return tuple(
        p
        for p in range(problem.forward_count)
        if not droppable.isdisjoint(problem.operations[p].outputs)
    )


def articulation_cuts(problem: Problem) -> dict[int, frozenset[int]]:
    """Return positions between forward operations that at most one value crosses, and that value.

    They are looked for behind each forward vertex but the last.
    """
    droppable = droppable_values(problem)
    vertices = forward_vertices(problem)
    last_read = {v: p for p in vertices for v in problem.operations[p].inputs if v in droppable}
    cuts: dict[int, frozenset[int]] = {}
    crossing: set[int] = set()
    for p in vertices[:-1]:
        crossing.update(v for v in problem.operations[p].outputs if v in last_read)
        crossing = {v for v in crossing if last_read[v] > p}
        if len(crossing) <= 1:
            cuts[p + 1] = frozenset(crossing)
    return cuts
