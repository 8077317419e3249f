"""How far a timeline is over a budget, and what giving up a value for a while would take off.

The area over the budget falls with every step of a repair, also where the same peak stands in
every layer and no single step can lower the highest of them.
"""

from __future__ import annotations

import numpy as np

from remat_gen.solver.improve.retain_more import Trial


class MemoryExcess:
    """Bytes over the budget inside each run, as running sums."""

    def __init__(self, trial: Trial, budget: int) -> None:
        """Sum up."""
        over = np.maximum(trial.figures.inside - budget, 0)
        self.sums = np.concatenate(([0], np.cumsum(over)))
        self.counts = np.concatenate(([0], np.cumsum(over > 0)))
        self.total = int(self.sums[-1])
        self._sums, self._counts = self.sums.tolist(), self.counts.tolist()

    def gain(self, nbytes: int, start: int, stop: int) -> int:
        """Return at most what the area falls by if so many bytes go from runs start … stop-1."""
        over: int = self._sums[stop] - self._sums[start]
        whole: int = nbytes * (self._counts[stop] - self._counts[start])
        return min(over, whole)


def over_budget(trial: Trial, budget: int) -> int:
    """Return the area over a budget; 0 where the trial fits."""
    if trial.peak_bytes <= budget:
        return 0
    return int(np.maximum(trial.figures.inside - budget, 0).sum())
