"""What moving one run does to the bytes over a budget, without building the program again.

A move shifts the runs that it passes by one place. Beside them only the stays that the moved run
makes or reads change: those that it makes begin with it, and those that nobody reads behind it end
with it. Thousands of moves are measured for each that is made.
"""

from __future__ import annotations

import numpy as np

from remat_gen.solver.improve.memory_measure import Trial
from remat_gen.solver.improve.problem_arrays import MADE, READ, Ints
from remat_gen.solver.law.problem import Operation


class MoveEffect:
    """The area over a budget after single moves of a trial's runs, each within a segment."""

    def __init__(self, trial: Trial, budget: int) -> None:
        """Sum up what is over the budget, and what is there right before and behind each run."""
        timeline = trial.timeline
        arrays, values = timeline.arrays, timeline.values
        self.timeline, self.arrays, self.budget = timeline, arrays, budget
        self.inside = trial.inside
        self.area = np.concatenate(([0], np.maximum(self.inside - budget, 0).cumsum()))
        nbytes, free = arrays.nbytes[values], arrays.free[values]
        self.stays_only = not (arrays.any_recompute or (~timeline.newest & ~free).any())
        raw = self.inside - arrays.extra_bytes[timeline.runs]
        made, ends = timeline.from_run, timeline.last_at[free]
        length = timeline.length + 1
        begun = np.bincount(timeline.made_at[made], nbytes[made], length)[:-1]
        ended = np.bincount(ends, nbytes[free], length)[: timeline.length]
        self.before: Ints = raw - begun.astype(np.int64)
        self.behind: Ints = raw - ended.astype(np.int64)

    def knows(self, y: int) -> bool:
        """Tell whether what a run makes ends with its last reader: what is held does not."""
        outputs = self._operation(y).outputs
        return self.stays_only and all(self.arrays.free[v] for v in outputs)

    def over(self, y: int, z: int) -> int:
        """Return the area over the budget with the run at y standing at z instead."""
        first, last = min(y, z), max(y, z)
        there = self._later(y, z) if y < z else self._earlier(y, z)
        there[-1] += self.arrays.extra_bytes[self.timeline.run_list[y]]
        elsewhere = self.area[-1] - self.area[last + 1] + self.area[first]
        return int(elsewhere + np.maximum(there - self.budget, 0).sum())

    def _later(self, y: int, z: int) -> Ints:
        """Return the bytes inside the runs that are passed, and inside the moved one."""
        sizes, timeline = self.arrays.sizes, self.timeline
        inside = np.append(self.inside[y + 1 : z + 1], self.behind[z])
        for v in self._operation(y).outputs:
            if timeline.reads[timeline.stay(v, y, MADE)]:
                inside[:-1] -= sizes[v]
            else:
                inside[-1] += sizes[v]
        for u in self._freed(y):
            end = int(timeline.last_at[timeline.stay(u, y, READ)])
            if end <= z:
                inside[end - y :] += sizes[u]
        return inside

    def _earlier(self, y: int, z: int) -> Ints:
        """Return the same for a run that comes to stand before those it passes."""
        sizes, timeline = self.arrays.sizes, self.timeline
        inside = np.append(self.inside[z:y], self.before[z])
        for v in self._operation(y).outputs:
            read = bool(timeline.reads[timeline.stay(v, y, MADE)])
            inside[0 if read else -1 :] += sizes[v]
        for u in self._freed(y):
            stay = timeline.stay(u, y, READ)
            if timeline.last_at[stay] == y:
                end = timeline.touched_before(u, y)
                given = end == timeline.made_at[stay] and not timeline.from_run[stay]
                inside[max(end + 1 - given - z, 0) : -1] -= sizes[u]
        return inside

    def _operation(self, y: int) -> Operation:
        return self.arrays.problem.operations[self.timeline.run_list[y]]

    def _freed(self, y: int) -> set[int]:
        """Return what a run reads that goes after its last reader."""
        return {u for u in self._operation(y).inputs if self.arrays.free[u]}
