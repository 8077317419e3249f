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

import numpy as np

from remat_gen.solver.improve.memory_measure import Trial, over_budget, trial_of
from remat_gen.solver.improve.move_effect import MoveEffect
from remat_gen.solver.improve.problem_arrays import MADE, Ints
from remat_gen.solver.improve.run_timeline import Timeline

TRIED = 24  # moves measured per step, those of the most bytes
STEPS = 200


def reordered(trial: Trial, budget: int, steps: int = STEPS) -> Trial:
    """Return the program after moves that take the most off what is over the budget."""
    over = over_budget(trial, budget)
    for _ in range(steps):
        if not over:
            break
        best, effect = None, MoveEffect(trial, budget)
        for y, z in _moves(trial.timeline, int(trial.inside.argmax())):
            if effect.knows(y):
                area = effect.over(y, z)
            else:
                area = over_budget(trial_of(trial.timeline.moved(y, z)), budget)
            if area < over:
                best, over = (y, z), area
        if best is None:
            break
        trial = trial_of(trial.timeline.moved(*best))
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
    low, high = spans(timeline)
    y = np.concatenate((timeline.made_at[late], timeline.last_at[early]))
    z = np.concatenate((high[y[: len(late)]], np.maximum(x, low[y[len(late) :]])))
    nbytes = arrays.nbytes[timeline.values[np.concatenate((late, early))]]
    found = dict(zip(zip(y.tolist(), z.tolist(), strict=True), nbytes.tolist(), strict=True))
    moves = [(y, z) for y, z in found if (y < x <= z) or (z <= x < y)]
    return sorted(moves, key=lambda move: (-found[move], move))[:TRIED]


def spans(timeline: Timeline) -> tuple[Ints, Ints]:
    """Return the first and the last position at which each run may stand instead."""
    place, stays = timeline.touch_positions, timeline.stays
    low, high = timeline.starts[timeline.segments], timeline.starts[timeline.segments + 1] - 1
    made = (timeline.touches & 1) == MADE
    again = np.append(~timeline.newest[1:], False)  # its value is made once more
    until = np.where(again, np.roll(timeline.made_at, -1) - 1, timeline.length)
    read, stay = place[~made], stays[~made]
    np.maximum.at(low, read, (timeline.made_at + timeline.from_run)[stay])
    np.minimum.at(high, read, until[stay])
    makes = np.flatnonzero(made & timeline.from_run[stays])
    values = np.append(timeline.touch_values, -1)
    after = makes[values[makes + 1] == values[makes]]
    before = makes[values[makes - 1] == values[makes]]
    np.minimum.at(high, place[after], place[after + 1] - 1)
    np.maximum.at(low, place[before], place[before - 1] + 1)
    here = np.arange(timeline.length)
    still = timeline.segments < timeline.first_backward
    still |= timeline.arrays.ordered[timeline.runs]
    return np.where(still, here, np.minimum(low, here)), np.where(
        still, here, np.maximum(high, here)
    )
