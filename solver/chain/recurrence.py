"""The chain recurrence: the least extra time for every budget at once.

T(i, j, m) is the least time of re-runs when blocks i … j-1 go forward and back, with f_i retained
outside of m and everything else, g_j included, inside m. It is rotor's recurrence (Beaumont et al.,
"Optimal checkpointing for heterogeneous chains", 2019) with several options per block as in
Rockmate (Zhao et al., 2023) and frontiers instead of single values. T(i, j, ·) is a staircase of
exact points (`pareto_rows.py`). Ranges with equal moves and equal parts are one row: identical
layers, and identical chains of layers, are solved once. The replay tells what is really used.
"""

from __future__ import annotations

import numpy as np

from remat_gen.solver.chain.chain_moves import Moves
from remat_gen.solver.chain.chain_plan import ChainLeaf, ChainPlan, Checkpoint, Inner
from remat_gen.solver.chain.pareto_rows import Ints, ParetoRows, Points, Times
from remat_gen.solver.law.search_types import Progress, silent

Key = tuple[object, ...]


class ChainTable:
    """The filled recurrence of one chain; its first point is the plan of least bytes."""

    def __init__(
        self, moves: Moves, slot_bytes: int, slots: int, progress: Progress = silent
    ) -> None:
        self.moves = moves
        self.n = n = moves.costs.n
        self.stairs = ParetoRows(n * (n + 1) // 2, slots, slot_bytes)
        self.rows: Ints = np.zeros((n + 1, n + 1), dtype=np.int64)  # of each range i … j - 1
        known: dict[Key, int] = {}
        for length in range(1, n + 1):
            for i in range(n - length + 1):
                self._add(i, i + length, known)
            progress("chain", length, n)

    def count(self) -> int:
        """Return the number of points of T(0, n, ·)."""
        return int(self.stairs.counts[self.rows[0, self.n]])

    def plan(self, point: int) -> ChainPlan:
        """Return the plan behind a point of T(0, n, ·); they stand by rising bytes."""
        row = self.rows[0, self.n]
        return self._plan(0, self.n, int(self.stairs.nbytes[row, point]))

    def _add(self, i: int, j: int, known: dict[Key, int]) -> None:
        key = self._key(i, j)
        row = known.get(key)
        if row is None:
            row = known[key] = len(known)
            self.stairs.put(row, self._points(i, j))
        self.rows[i, j] = row

    def _key(self, i: int, j: int) -> Key:
        """Return what T(i, j, ·) depends on."""
        key = self.moves.key(i, j)
        if j == i + 1:
            return key
        return (*key, self.rows[i + 1 : j, j].tobytes(), self.rows[i, i + 1 : j].tobytes())

    def _points(self, i: int, j: int) -> Points:
        if j == i + 1:
            moves = list(self.moves.leaves(i, j))
            nbytes = np.array([move.need_bytes for move in moves], dtype=np.int64)
            return Points(nbytes, _times([move.time_us for move in moves]), _numbers(len(moves)))
        parts = (self._inner_points(i, j), *self._checkpoint_points(i, j))
        return Points(
            np.concatenate([part.nbytes for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.choices for part in parts]),
        )

    def _inner_points(self, i: int, j: int) -> Points:
        moves = list(self.moves.inners(i, j))
        need = np.array([move.need_bytes for move in moves], dtype=np.int64)[:, None]
        held = np.array([move.held_bytes for move in moves], dtype=np.int64)[:, None]
        extra = _times([move.time_us for move in moves])[:, None]
        row = self.rows[i + 1, j]
        count = self.stairs.counts[row]
        nbytes = np.maximum(need, held + self.stairs.nbytes[row, :count])
        times = extra + self.stairs.times[row, :count]
        choices = np.repeat(_numbers(len(moves)), count)
        return Points(nbytes.ravel(), times.ravel(), choices)

    def _checkpoint_points(self, i: int, j: int) -> tuple[Points, Points]:
        """Return the points at each step of the later range, and at each of the range again."""
        stairs = self.stairs
        moves = self.moves.checkpoints(i, j)
        later, again = self.rows[i + 1 : j, j][:, None], self.rows[i, i + 1 : j][:, None]
        need, held, extra = moves.need[:, None], moves.held[:, None], moves.times[:, None]
        offsets = np.arange(-1, i - j, -1)

        steps = self._steps(later)
        nbytes = np.maximum(np.maximum(need, held + steps), stairs.least[again])
        one = self._fitting(nbytes, extra, later, again, nbytes, offsets)

        steps = self._steps(again)
        nbytes = np.maximum(np.maximum(need, steps), held + stairs.least[later])
        other = self._fitting(nbytes, extra, again, later, nbytes - held, offsets)
        return one, other

    def _steps(self, rows: Ints) -> Ints:
        """Return the bytes of rows' points, as far as the longest of them goes."""
        width = int(self.stairs.counts[rows].max())
        steps: Ints = self.stairs.nbytes[rows[:, 0], :width]
        return steps

    def _fitting(
        self, nbytes: Ints, extra: Times, rows: Ints, others: Ints, left: Ints, offsets: Ints
    ) -> Points:
        """Return the points within the limit: each of `rows`' with the others' best in `left`."""
        k, at = np.nonzero(nbytes < self.stairs.limit)
        times = extra[k, 0] + self.stairs.times[rows[k, 0], at]
        times += self.stairs.times_at(others[k, 0], left[k, at])
        return Points(nbytes[k, at], times, offsets[k])

    def _plan(self, i: int, j: int, nbytes: int) -> ChainPlan:
        row = self.rows[i, j]
        point = self.stairs.find(row, nbytes)
        number = int(self.stairs.choices[row, point])
        if j == i + 1:
            return ChainLeaf(i, self.moves.leaf_options(i, j)[number])
        nbytes = int(self.stairs.nbytes[row, point])
        if number >= 0:
            option = self.moves.choices[i].options[number]
            return Inner(i, option, self._plan(i + 1, j, nbytes - self.moves.held(i, option)))
        k = i - number
        later = self._plan(k, j, nbytes - self.moves.held_by_checkpoint(i, k))
        return Checkpoint(i, k, later, self._plan(i, k, nbytes))


def _times(times_us: list[float]) -> Times:
    return np.array(times_us, dtype=np.float64)


def _numbers(count: int) -> Ints:
    return np.arange(count, dtype=np.int64)
