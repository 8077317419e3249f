"""Move runs where that lowers what is over a budget; no move costs time.

What makes a value long before its first read runs later; what frees a value that lies idle runs
earlier (a parameter-gradient operation frees its input so). Forward operations keep their traced
order, since random ones must: so do the first runs of every forward segment. Backward operations
that are random or write keep their place; sums of gradients name their terms, so that moving one
changes nothing of it. A backward operation
stays in its segment, and each run between the makings of what it reads and the first read of what
it makes, so that every run reads what it read before.
"""

from __future__ import annotations

from bisect import bisect_left

import numpy as np

from remat_gen.solver.improve.memory_excess import over_budget
from remat_gen.solver.improve.problem_arrays import MADE, READ
from remat_gen.solver.improve.retain_more import Trial, trial_of
from remat_gen.solver.improve.run_timeline import Timeline

TRIED = 24  # moves measured per step, those of the most bytes
STEPS = 200


def reordered(trial: Trial, budget: int, steps: int = STEPS) -> Trial:
    """Return the program after moves that take the most off what is over the budget."""
    over = over_budget(trial, budget)
    for _ in range(steps):
        if not over:
            break
        best = None
        for y, z in _moves(trial.timeline, int(trial.figures.inside.argmax())):
            moved = trial_of(trial.timeline.moved(y, z))
            area = over_budget(moved, budget)
            if area < over:
                best, over = moved, area
        if best is None:
            break
        trial = best
    return trial


def _moves(timeline: Timeline, x: int) -> list[tuple[int, int]]:
    """Return moves (from, to) that may lower what is there at position x."""
    arrays = timeline.arrays
    first_read = np.append(timeline.touch_positions, timeline.length)[timeline.begins + 1]
    idle = (timeline.reads > 0) & arrays.free[timeline.values] & (timeline.made_at < x)
    here = timeline.segments == timeline.segments[x]  # runs stay in their segment
    here = np.append(here, False)  # what appears may do so behind the last run
    made_here = here[timeline.made_at] & timeline.from_run
    late = np.flatnonzero(idle & made_here & (first_read > x))
    early = np.flatnonzero(idle & here[timeline.last_at] & (timeline.last_at > x))
    found: dict[tuple[int, int], int] = {}
    for stay in late.tolist():
        y = int(timeline.made_at[stay])
        found[y, span(timeline, y)[1]] = int(arrays.nbytes[timeline.values[stay]])
    for stay in early.tolist():
        y = int(timeline.last_at[stay])
        found[y, max(x, span(timeline, y)[0])] = int(arrays.nbytes[timeline.values[stay]])
    moves = [(y, z) for y, z in found if (y < x <= z) or (z <= x < y)]
    return sorted(moves, key=lambda move: (-found[move], move))[:TRIED]


def span(timeline: Timeline, y: int) -> tuple[int, int]:
    """Return the first and the last position at which the run at y may stand instead."""
    operation = timeline.arrays.problem.operations[timeline.run_list[y]]
    segment = int(timeline.segments[y])
    if segment < timeline.first_backward or operation.ordered:
        return y, y
    low, high = int(timeline.starts[segment]), int(timeline.starts[segment + 1]) - 1
    touches = timeline.touch_list
    for u in operation.inputs:
        own = bisect_left(touches, timeline.key(u, y, READ))
        made = own
        while touches[made] & 1 == READ:
            made -= 1
        low = max(low, timeline.place(touches[made]) + (1 if timeline.ran(touches[made]) else 0))
        again = own + 1
        while again < len(touches) and touches[again] & 1 == READ:
            again += 1
        if again < len(touches) and timeline.value(touches[again]) == u:
            high = min(high, timeline.place(touches[again]) - 1)
    for v in operation.outputs:
        own = bisect_left(touches, timeline.key(v, y, MADE))
        if own + 1 < len(touches) and timeline.value(touches[own + 1]) == v:
            high = min(high, timeline.place(touches[own + 1]) - 1)
        if own and timeline.value(touches[own - 1]) == v:
            low = max(low, timeline.place(touches[own - 1]) + 1)
    return min(low, y), max(high, y)
