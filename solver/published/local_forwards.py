"""From the values that are retained to runs: each segment runs forward once more, as a whole.

What Chen et al. (2016) and Feng & Huang (2021) share. Operations whose results are dropped and that
read each other's form a *segment*; it starts from retained values only. Right before the first
backward operation that reads a value from inside, the segment's operations run again, those whose
results backward needs ("local forward"); they then live until their last use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet

from remat_gen.solver.blocks.block_chain import needed_values
from remat_gen.solver.blocks.judged_runs import incumbent_of
from remat_gen.solver.law.pins import recomputable
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, Found, Incumbent, SearchFunction


def searching(
    choices: Callable[[Problem, Effort], Iterable[AbstractSet[int]]],
) -> SearchFunction:
    """Return the search for the quickest schedule of several choices of values to drop.

    Beside those that `choices` returns, that is to drop none.
    """

    def search(
        problem: Problem,
        budget_bytes: int,
        effort: Effort = Effort.NORMAL,
        on_better: Incumbent | None = None,
    ) -> Found:
        incumbent = incumbent_of(problem, budget_bytes, on_better)
        dropped = dict.fromkeys([frozenset[int](), *choices(problem, effort)])
        incumbent.offer_all(all_local_forwards(problem, dropped))
        return incumbent.found()

    return search


def droppable_values(problem: Problem) -> frozenset[int]:
    """Return the forward values that backward may need and that a second run gives back."""
    return recomputable(problem) & needed_values(problem)


def all_local_forwards(
    problem: Problem, choices: Iterable[AbstractSet[int]]
) -> Iterator[tuple[int, ...]]:
    """Yield the runs for each choice of dropped values: the last segment kept, and run again."""
    for dropped in choices:
        for keep_last in (True, False):
            yield with_local_forwards(problem, dropped, keep_last=keep_last)


def with_local_forwards(
    problem: Problem, dropped: AbstractSet[int], *, keep_last: bool
) -> tuple[int, ...]:
    """Return the runs that retain all forward values but `dropped` ones (droppable values).

    With `keep_last` the segment that backward reads first is not run again: it would be made anew
    the moment it was freed.
    """
    forward = problem.forward_count
    segment_of = _segments(problem, dropped)
    again = _local_forwards(problem, segment_of)
    runs = list(range(forward))
    started: set[int] = set()
    for t in range(forward, len(problem.operations)):
        for v in problem.operations[t].inputs:
            segment = segment_of.get(v)
            if segment is None or segment in started:
                continue
            if started or not keep_last:
                runs += again[segment]
            started.add(segment)
        runs.append(t)
    return tuple(runs)


def _segments(problem: Problem, dropped: AbstractSet[int]) -> dict[int, int]:
    """Return for each dropped value the first operation of its segment."""
    operations = problem.operations[: problem.forward_count]
    parent = list(range(len(operations)))

    def root(p: int) -> int:
        while parent[p] != p:
            parent[p] = parent[parent[p]]
            p = parent[p]
        return p

    producer = {v: p for p, o in enumerate(operations) for v in o.outputs if v in dropped}
    for p, operation in enumerate(operations):
        if dropped.isdisjoint(operation.outputs):
            continue  # never runs again: what it reads is not linked by it
        for v in operation.inputs:
            if v in producer:
                a, b = sorted((root(producer[v]), root(p)))
                parent[b] = a
    return {v: root(p) for v, p in producer.items()}


def _local_forwards(problem: Problem, segment_of: dict[int, int]) -> dict[int, list[int]]:
    """Return each segment's operations that backward's reads of its values depend on."""
    forward = problem.forward_count
    reads = (v for operation in problem.operations[forward:] for v in operation.inputs)
    wanted = {v for v in reads if v in segment_of}
    again: dict[int, list[int]] = {segment: [] for segment in segment_of.values()}
    for p in range(forward - 1, -1, -1):
        made = [v for v in problem.operations[p].outputs if v in wanted]
        if made:
            again[segment_of[made[0]]].append(p)
            wanted.update(v for v in problem.operations[p].inputs if v in segment_of)
    return {segment: operations[::-1] for segment, operations in again.items()}
