"""From the values that are retained to runs: each segment runs forward once more, as a whole.

What Chen et al. (2016) and Feng & Huang (2021) share. Operations whose results are dropped and that
read each other's form a *segment*. Right before the first backward operation that reads a value
from inside, its operations run again, those whose results backward needs ("local forward").
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from remat_gen.solver.blocks.block_chain import needed_values
from remat_gen.solver.blocks.judged_runs import IncumbentSchedule, SearchFunction
from remat_gen.solver.blocks.simple_programs import run_again_as_wholes
from remat_gen.solver.law.pins import recomputable
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found
from remat_gen.solver.published.division import components


def searching(
    choices: Callable[[Problem, Effort], Iterable[AbstractSet[int]]],
) -> SearchFunction:
    """Return the search for the quickest schedule of several choices of values to drop."""

    def search(incumbent: IncumbentSchedule, effort: Effort) -> Found:
        problem = incumbent.problem
        ways = itertools.product(choices(problem, effort), (True, False))
        incumbent.offer_all(with_local_forwards(problem, d, keep_last=last) for d, last in ways)
        return incumbent.found()

    return search


def droppable_values(problem: Problem) -> frozenset[int]:
    """Return the forward values that backward may need and that a second run gives back."""
    return recomputable(problem) & needed_values(problem)


def with_local_forwards(
    problem: Problem, dropped: AbstractSet[int], *, keep_last: bool
) -> tuple[int, ...]:
    """Return the runs that retain all forward values but `dropped` ones (droppable values).

    With `keep_last` the segment that backward reads first is not run again.
    """
    return run_again_as_wholes(problem, _segments(problem, dropped), but_first=keep_last)


def _segments(problem: Problem, dropped: AbstractSet[int]) -> dict[int, int]:
    """Return for each dropped value the first operation of its segment."""
    operations = problem.operations[: problem.forward_count]
    producer = {v: p for p, o in enumerate(operations) for v in o.outputs if v in dropped}
    again = sorted(set(producer.values()))  # what never runs again links nothing by what it reads
    links = [(producer[v], p) for p in again for v in operations[p].inputs if v in producer]
    first = {p: segment[0] for segment in components(again, links) for p in segment}
    return {v: first[p] for v, p in producer.items()}


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
