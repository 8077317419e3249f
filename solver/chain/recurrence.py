"""The chain recurrence: the least extra time for every budget at once.

T(i, j, m) is the least time of re-runs when blocks i … j-1 go forward and back, with f_i retained
outside of m and everything else, g_j included, inside m. It is rotor's recurrence (Beaumont et al.,
"Optimal checkpointing for heterogeneous chains", 2019) with several options per block as in
Rockmate (Zhao et al., 2023) and frontiers instead of single values. T(i, j, ·) is a staircase of
exact points (`pareto_rows.py`). Ranges with equal moves and equal parts are one row: identical
layers, and identical chains of layers, are solved once. The replay tells what is really used.
"""

from __future__ import annotations

from itertools import chain

import numpy as np

from remat_gen.solver.blocks.block_option import Option
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.chain_moves import Moves
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

    def runs(self, point: int) -> list[int]:
        """Return the runs of a point of T(0, n, ·), also those that nobody reads.

        Points stand by rising bytes.
        """
        written = _Writer(self.moves.costs)
        self._write(written, 0, self.n, int(self.stairs.nbytes[self.rows[0, self.n], point]))
        return list(chain.from_iterable(written.segments))

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
            moves = self.moves.leaves(i, j)
            return Points(moves.need, moves.times, np.arange(len(moves.need)))
        parts = (self._inner_points(i, j), *self._checkpoint_points(i, j))
        return Points(
            np.concatenate([part.nbytes for part in parts]),
            np.concatenate([part.times for part in parts]),
            np.concatenate([part.choices for part in parts]),
        )

    def _inner_points(self, i: int, j: int) -> Points:
        moves, row = self.moves.inners(i, j), self.rows[i + 1, j]
        count = self.stairs.counts[row]
        held = moves.held[:, None] + self.stairs.nbytes[row, :count]
        nbytes = np.maximum(moves.need[:, None], held)
        times = moves.times[:, None] + self.stairs.times[row, :count]
        choices = np.repeat(np.arange(len(moves.need)), count)
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

    def _write(self, written: _Writer, i: int, j: int, nbytes: int) -> None:
        """Write how blocks i … j - 1 run within some bytes."""
        row, first, costs = self.rows[i, j], j == self.n, self.moves.costs
        point = self.stairs.find(row, nbytes)
        number = int(self.stairs.choices[row, point])
        nbytes = int(self.stairs.nbytes[row, point])
        if j == i + 1:
            written.forward(i, (), first)
            written.backward(i, self.moves.leaf_options(i, j)[number])
        elif number >= 0:  # an option of block i, around the rest
            option, start = self.moves.choices[i].options[number], costs.chain.blocks[i].start
            written.forward(i, tuple(start + p for p in option.again), first)
            self._write(written, i + 1, j, nbytes - self.moves.held(i, option))
            written.backward(i, option)
        else:  # blocks i … k - 1 forward, keeping f_k alone; the range from k; they again
            k = i - number
            for b in range(i, k):
                written.forward(b, costs.advance(i, b, first=False).operations, first)
            self._write(written, k, j, nbytes - self.moves.held_by_checkpoint(i, k))
            self._write(written, i, k, nbytes)


class _Writer:
    """Runs by segment; re-runs across blocks stand before the backward segment behind them."""

    def __init__(self, costs: ChainCosts) -> None:
        self.blocks = costs.chain.blocks
        self.segments: list[list[int]] = [[] for _ in range(2 * costs.n)]
        self.pending: list[int] = []

    def forward(self, b: int, again: tuple[int, ...], first: bool) -> None:
        if first:
            self.segments[b].extend(range(self.blocks[b].start, self.blocks[b].stop))
        else:
            self.pending.extend(again)

    def backward(self, b: int, option: Option) -> None:
        segment, block = self.segments[-1 - b], self.blocks[b]
        segment.extend(self.pending)
        self.pending.clear()
        for t, stage in zip(block.backward, option.stages, strict=True):
            segment += [*(block.start + p for p in stage), t]
