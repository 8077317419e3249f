"""The terms of the chain recurrence: what each choice for a range of blocks needs and costs.

Each term is the same for identical blocks, so that ranges of them can be recognised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from remat_gen.solver.blocks.block_option import BlockChoices, Option
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.pareto_rows import Ints, Times


@dataclass(frozen=True, slots=True)
class Move:
    """The choice of an option of one block, by its number.

    `need_bytes` must fit by itself; while the rest of the range runs, `held_bytes` are taken from
    it; `time_us` is what the choice re-runs.
    """

    number: int
    need_bytes: int
    held_bytes: int
    time_us: float


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """The moves that run blocks i … k-1 forward and keep only f_k, for k = i + 1, i + 2, …"""

    need: Ints
    held: Ints
    times: Times

    def as_bytes(self) -> tuple[bytes, bytes, bytes]:
        """Return what tells these from those of other ranges."""
        return self.need.tobytes(), self.held.tobytes(), self.times.tobytes()


class Moves:
    """All moves of one chain for given options per block."""

    def __init__(self, costs: ChainCosts, choices: Sequence[BlockChoices]) -> None:
        self.costs, self.choices = costs, choices
        self._advancing: dict[tuple[int, bool], Checkpoints] = {}
        numbers = {id(choice): number for number, choice in enumerate(choices)}
        self._kinds = [numbers[id(choice)] for choice in choices]

    def key(self, i: int, j: int) -> tuple[object, ...]:
        """Return what tells the moves of a range from those of others."""
        costs, first = self.costs, j == self.costs.n
        around = (costs.around_forward(i, i, j), costs.around_backward[i])
        if j == i + 1:
            return (self._kinds[i], first, *around)
        extra = costs.frontier_extra(i, i + 1)
        return (self._kinds[i], first, *around, extra, self._advances_to(i, j).as_bytes())

    def held(self, i: int, option: Option) -> int:
        """Return the bytes that an option of block i holds while the range from i + 1 runs."""
        return option.saved_bytes + self.costs.frontier_extra(i, i + 1)

    def held_by_checkpoint(self, i: int, k: int) -> int:
        """Return the bytes that f_k and what is pinned on the way to it hold."""
        return self.costs.frontier_extra(i, k) + self.costs.pinned(i, k)

    def leaf_options(self, i: int, j: int) -> tuple[Option, ...]:
        """Return the options of block i alone, first run or re-run."""
        return self.choices[i].options if j == self.costs.n else self.choices[i].leaves

    def leaves(self, i: int, j: int) -> Iterator[Move]:
        """Yield the moves that run block i alone, j = i + 1."""
        for number, option in enumerate(self.leaf_options(i, j)):
            need = option.backward_peak_bytes + self.costs.around_backward[i]
            if j == self.costs.n:
                before = self.costs.around_forward(i, i, j)
                need = max(need, option.first_peak_bytes + before)
            yield Move(number, need, 0, option.rerun_us)

    def inners(self, i: int, j: int) -> Iterator[Move]:
        """Yield the moves that keep an option of block i around the range from i + 1."""
        around = self.costs.around_forward(i, i, j)
        first = j == self.costs.n
        for number, option in enumerate(self.choices[i].options):
            forward = option.first_peak_bytes if first else option.again_peak_bytes
            backward = option.backward_peak_bytes + self.costs.around_backward[i]
            again_us = 0.0 if first else option.again_us
            need = max(forward + around, backward)
            yield Move(number, need, self.held(i, option), option.rerun_us + again_us)

    def checkpoints(self, i: int, j: int) -> Checkpoints:
        """Return the moves that keep only f_k of blocks i … k-1 while the range from k runs."""
        around = 0 if j == self.costs.n else self.costs.around_forward(i, i, j)
        moves = self._advances_to(i, j)
        return Checkpoints(moves.need + around, moves.held, moves.times)

    def _advances_to(self, i: int, j: int) -> Checkpoints:
        first = j == self.costs.n
        if (i, first) not in self._advancing:
            self._advancing[i, first] = self._advances(i, first)
        found, count = self._advancing[i, first], j - i - 1
        return Checkpoints(found.need[:count], found.held[:count], found.times[:count])

    def _advances(self, i: int, first: bool) -> Checkpoints:
        """Return what running blocks i … k-1 forward needs, holds and takes, for every k at once.

        Only in the first run does what is there besides a block's own depend on the block.
        """
        costs = self.costs
        need, time_us = 0, 0.0
        found: list[tuple[int, int, float]] = []
        for k in range(i + 1, costs.n):
            advance = costs.advance(i, k - 1, first=first)
            around = costs.around_forward(i, k - 1, costs.n) if first else 0
            need = max(need, advance.peak_bytes + around)
            time_us += 0.0 if first else advance.time_us
            found.append((need, self.held_by_checkpoint(i, k), time_us))
        needs, held, times = zip(*found, strict=True) if found else ((), (), ())
        ints = np.int64
        return Checkpoints(np.array(needs, ints), np.array(held, ints), np.array(times, np.float64))
