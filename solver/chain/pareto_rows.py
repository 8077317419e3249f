"""Least times over bytes, as staircases: points of rising bytes and falling time, one row a range.

Points keep their exact bytes, so that nothing adds up over a long chain. Slots only thin them out:
of those that end in one slot the quickest stays, and the one of least bytes of all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Times = npt.NDArray[np.float64]


class Points(NamedTuple):
    """Candidates for a row: bytes, times, and the number of the choice behind each."""

    nbytes: Ints
    times: Times
    choices: Ints


class ParetoRows:
    """Rows of points, and where each row stands at the end of every slot."""

    def __init__(self, rows: int, slots: int, slot_bytes: int) -> None:
        """Make room for rows; points beyond all slots are dropped."""
        self.slots, self.slot_bytes = slots, slot_bytes
        self.limit = slots * slot_bytes
        shape = (rows, slots + 1)
        self.nbytes = np.empty(shape, dtype=np.int64)
        self.times = np.empty(shape, dtype=np.float64)
        self.choices = np.empty(shape, dtype=np.int16)
        self.last = np.empty(shape, dtype=np.int16)  # the last point that ends in a slot or before
        self.ends = np.arange(1, slots + 2, dtype=np.int64) * slot_bytes
        self.counts = np.zeros(rows, dtype=np.int64)
        self.least = np.zeros(rows, dtype=np.int64)

    def put(self, row: int, points: Points) -> None:
        """Fill a row with the best of some points."""
        best = _staircase(points, self.limit, self.slot_bytes)
        count = len(best.nbytes)
        self.counts[row] = count
        self.nbytes[row, :count], self.nbytes[row, count:] = best.nbytes, self.limit
        self.times[row, :count], self.times[row, count:] = best.times, np.inf
        self.choices[row, :count] = best.choices
        self.least[row] = best.nbytes[0] if count else self.limit
        self.last[row] = np.searchsorted(best.nbytes, self.ends) - 1

    def times_at(self, rows: Ints, nbytes: Ints) -> Times:
        """Return the least times of rows within bytes."""
        begins = rows * (self.slots + 1)
        slot = np.clip(nbytes, 0, self.limit) // self.slot_bytes
        point = self.last.take(begins + slot).astype(np.int64)
        for _ in range(2):  # a slot holds one point, the first used one may hold two
            point -= (point >= 0) & (self.nbytes.take(begins + point) > nbytes)
        return np.where(point < 0, np.inf, self.times.take(begins + point))

    def find(self, row: int, nbytes: int) -> int:
        """Return the quickest point of a row within bytes."""
        count = int(self.counts[row])
        return int(np.searchsorted(self.nbytes[row, :count], nbytes, side="right")) - 1


def _staircase(points: Points, limit: int, slot_bytes: int) -> Points:
    """Return the quickest point of each slot, where quicker than all with fewer bytes."""
    fits = np.flatnonzero((points.nbytes < limit) & np.isfinite(points.times))
    nbytes, times = points.nbytes[fits], points.times[fits]
    if not len(fits):
        return Points(nbytes, times, points.choices[fits])
    slot = (nbytes // slot_bytes).astype(np.int16)
    order = np.argsort(slot, kind="stable")  # a radix sort, for 16 bits
    begins = np.flatnonzero(np.diff(slot[order], prepend=-1))
    quickest = np.minimum.reduceat(times[order], begins)
    lengths = np.diff(begins, append=len(order))
    chosen = order[times[order] == np.repeat(quickest, lengths)]
    chosen = np.append(chosen, _least(nbytes, times))
    chosen = chosen[np.lexsort((times[chosen], nbytes[chosen]))]
    before = np.minimum.accumulate(np.concatenate(([np.inf], times[chosen][:-1])))
    chosen = chosen[times[chosen] < before]
    return Points(nbytes[chosen], times[chosen], points.choices[fits][chosen])


def _least(nbytes: Ints, times: Times) -> int:
    least = np.flatnonzero(nbytes == nbytes.min())
    return int(least[times[least].argmin()])
