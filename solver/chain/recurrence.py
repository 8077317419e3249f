"""The chain recurrence: the least extra time for every budget at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from remat_gen.solver.blocks.block_option import BlockChoices, Option
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.pareto_rows import Ints, ParetoRows, Points, Times
from remat_gen.solver.law.search_types import Progress, silent


class ChainTable:
    """T(i, j, m): the least time of re-runs when blocks i … j-1 go forward and back within m.

    f_i is retained outside of m; everything else, g_j included, is inside. It is rotor's recurrence
    (Beaumont et al., "Optimal checkpointing for heterogeneous chains", 2019) with several options
    per block as in Rockmate (Zhao et al., 2023) and frontiers instead of single values. T(i, j, ·)
    is a staircase of exact points. Ranges with equal moves and equal parts are one row.
    """

    def __init__(
        self,
        costs: ChainCosts,
        choices: Sequence[BlockChoices],
        slot_bytes: int,
        slots: int,
        progress: Progress = silent,
    ) -> None:
        """Fill it for the choices of each block, one object for identical blocks."""
        self.costs, self.choices = costs, choices
        self.n = n = costs.n
        self.stairs = ParetoRows(n * (n + 1) // 2, slots, slot_bytes)
        self.rows: Ints = np.zeros((n + 1, n + 1), dtype=np.int64)  # of each range i … j - 1
        self.advances = {
            (i, first): self._advances(i, first) for i in range(n) for first in (True, False)
        }
        known: dict[tuple[object, ...], int] = {}
        for length in range(1, n + 1):
            for i in range(n - length + 1):
                key = self._key(i, i + length)
                if key not in known:
                    self.stairs.put(len(known), self._points(i, i + length))
                self.rows[i, i + length] = known.setdefault(key, len(known))
            progress("chain", length, n)

    def count(self) -> int:
        """Return the number of points of T(0, n, ·)."""
        return int(self.stairs.counts[self.rows[0, self.n]])

    def runs(self, point: int) -> list[int]:
        """Return the runs of a point of T(0, n, ·), also those that nobody reads.

        Points stand by rising bytes.
        """
        runs: list[int] = []
        self._write(runs, 0, self.n, int(self.stairs.nbytes[self.rows[0, self.n], point]))
        return runs

    def _advances(self, i: int, first: bool) -> tuple[Ints, Ints, Times]:
        """Return what running blocks i … k - 1 forward needs, holds and re-runs, for each k > i.

        Held are f_k and what is pinned on the way. Only in the first run does what is there besides
        a block's own depend on the block.
        """
        costs = self.costs
        need, time_us = 0, 0.0
        needs, times = [], []
        for b in range(i, costs.n - 1):
            advance = costs.advance(i, b, first=first)
            around = costs.around_forward(i, b, costs.n) if first else 0
            need = max(need, advance.peak_bytes + around)
            time_us += 0.0 if first else advance.time_us
            needs.append(need)
            times.append(time_us)
        held = [self._held(i, k) for k in range(i + 1, costs.n)]
        return np.array(needs, np.int64), np.array(held, np.int64), np.array(times)

    def _held(self, i: int, k: int) -> int:
        return self.costs.frontier_extra(i, k) + self.costs.pinned(i, k)

    def _key(self, i: int, j: int) -> tuple[object, ...]:
        """Return what T(i, j, ·) depends on."""
        costs, first = self.costs, j == self.n
        around = (costs.around_forward(i, i, j), costs.around_backward[i])
        key = (id(self.choices[i]), first, *around)
        if j == i + 1:
            return key
        moves = (array[: j - i - 1].tobytes() for array in self.advances[i, first])
        parts = self.rows[i + 1 : j, j].tobytes(), self.rows[i, i + 1 : j].tobytes()
        return (*key, costs.frontier_extra(i, i + 1), *moves, *parts)

    def _options(self, i: int, j: int) -> tuple[Option, ...]:
        """Return the options of block i, alone where its forward ran long ago."""
        alone = j == i + 1 < self.n
        return self.choices[i].leaves if alone else self.choices[i].options

    def _points(self, i: int, j: int) -> Points:
        if j == i + 1:
            return self._option_points(i, j)
        parts = (self._option_points(i, j), *self._checkpoint_points(i, j))
        return Points(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _option_points(self, i: int, j: int) -> Points:
        """Return the points at each option of block i around each step of the rest, if any."""
        costs, first, alone = self.costs, j == self.n, j == i + 1
        options = self._options(i, j)
        around = costs.around_forward(i, i, j)
        need = []
        for option in options:
            forward = option.first_peak_bytes if first else option.again_peak_bytes
            forward = forward + around if first or not alone else 0
            need.append(max(forward, option.backward_peak_bytes + costs.around_backward[i]))
        again = [0.0 if first or alone else option.again_us for option in options]
        times = np.array([option.rerun_us for option in options]) + again
        needs, numbers = np.array(need, np.int64), np.arange(len(options))
        if alone:
            return Points(needs, times, numbers)
        row, extra = self.rows[i + 1, j], costs.frontier_extra(i, i + 1)
        count = self.stairs.counts[row]
        held = np.array([option.saved_bytes + extra for option in options], np.int64)[:, None]
        nbytes = np.maximum(needs[:, None], held + self.stairs.nbytes[row, :count])
        times = times[:, None] + self.stairs.times[row, :count]
        return Points(nbytes.ravel(), times.ravel(), np.repeat(numbers, count))

    def _checkpoint_points(self, i: int, j: int) -> tuple[Points, Points]:
        """Return the points at each step of the later range, and at each of the range again."""
        stairs, count = self.stairs, j - i - 1
        around = 0 if j == self.n else self.costs.around_forward(i, i, j)
        needs, holds, times = self.advances[i, j == self.n]
        need, held, extra = needs[:count, None] + around, holds[:count, None], times[:count, None]
        later, again = self.rows[i + 1 : j, j][:, None], self.rows[i, i + 1 : j][:, None]
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

    def _write(self, runs: list[int], i: int, j: int, nbytes: int) -> None:
        """Write how blocks i … j - 1 run within some bytes."""
        row, first, costs = self.rows[i, j], j == self.n, self.costs
        point = self.stairs.find(row, nbytes)
        number = int(self.stairs.choices[row, point])
        nbytes = int(self.stairs.nbytes[row, point])
        if number < 0:  # blocks i … k - 1 forward, keeping f_k alone; the range from k; they again
            k = i - number
            for b in range(i, k):
                runs += costs.advance(i, b, first=first).operations
            self._write(runs, k, j, nbytes - self._held(i, k))
            self._write(runs, i, k, nbytes)
            return
        block, option = costs.chain.blocks[i], self._options(i, j)[number]
        if first:
            runs += range(block.start, block.stop)
        if j > i + 1:  # the option is around the rest
            runs += [block.start + p for p in option.again if not first]
            left = nbytes - option.saved_bytes - costs.frontier_extra(i, i + 1)
            self._write(runs, i + 1, j, left)
        for t, stage in zip(block.backward, option.stages, strict=True):
            runs += [*(block.start + p for p in stage), t]
