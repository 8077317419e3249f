"""From the values that are retained to runs: each segment runs forward once more, as a whole.

What Chen et al. (2016) and Feng & Huang (2021) share. Operations whose results are dropped and that
read each other's form a *segment*; it starts from retained values only. Right before the first
backward operation that reads a value from inside, the segment's operations run again, those whose
results backward needs ("local forward"); they then live until their last use.
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
from remat_gen.solver.published.separation import components


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
