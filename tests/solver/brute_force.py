"""The true optimum of tiny problems: Dijkstra over what is in memory and how far the step is."""

from __future__ import annotations

import heapq
from itertools import combinations

from remat_gen.solver.law.problem import Held, Problem


def least_time(problem: Problem, budget_bytes: int) -> float | None:
    """Return the least time of any schedule within the budget; None if none fits.

    For problems without SEGMENT-held values: it knows no blocks.

    Where values must be recomputed, backward begins when forward's last operation has run.

    Operations run first in traced order, forward ones again during backward; every re-run and every
    set of frees is tried. A state is (operations begun, resident values).
    """
    forward = problem.forward_count
    recompute = {v for v, value in enumerate(problem.values) if value.recompute}
    start = (0, frozenset[int]())
    best: dict[tuple[int, frozenset[int]], float] = {start: 0.0}
    queue: list[tuple[float, int, tuple[int, ...]]] = [(0.0, 0, ())]
    while queue:
        time_us, done, values = heapq.heappop(queue)
        resident = frozenset(values)
        if done == len(problem.operations):
            return time_us
        if best[done, resident] < time_us:
            continue
        again = range(forward) if done >= forward else ()
        for p in (done, *again):
            if p != done and not problem.operations[p].rerunnable:
                continue
            after = _run(problem, p, done, resident, budget_bytes)
            if after is None:
                continue
            begun = done + (p == done)
            took = time_us + problem.operations[p].time_us
            for state in _frees(problem, after):
                if recompute and p == done == forward - 1:
                    if recompute & state:
                        continue
                    state |= set(problem.given)
                if took < best.get((begun, state), float("inf")):
                    best[begun, state] = took
                    heapq.heappush(queue, (took, begun, tuple(sorted(state))))
    return None


def _run(
    problem: Problem, p: int, done: int, resident: frozenset[int], budget_bytes: int
) -> frozenset[int] | None:
    """Return what is resident after operation p, or None if it cannot run."""
    operation = problem.operations[p]
    pinned = any(value.recompute for value in problem.values)  # then it has begun already
    if done == problem.forward_count and p == done and not pinned:
        resident |= set(problem.given)  # backward begins at the latest here
    if not set(operation.inputs) <= resident:
        return None
    made = sum(problem.values[v].nbytes for v in operation.outputs)
    inside = sum(problem.values[v].nbytes for v in resident) + made + operation.workspace_bytes
    return resident | set(operation.outputs) if inside <= budget_bytes else None


def _frees(problem: Problem, resident: frozenset[int]) -> list[frozenset[int]]:
    """Return every set that freeing some values leaves."""
    free = sorted(v for v in resident if problem.values[v].held is Held.FREE)
    return [
        resident - set(chosen) for k in range(len(free) + 1) for chosen in combinations(free, k)
    ]
