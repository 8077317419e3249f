"""The terms of the chain recurrence: what each choice for a range of blocks needs and costs.

Each term is the same for identical blocks, so that ranges of them can be recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from remat_gen.solver.blocks.block_option import BlockChoices, Option
from remat_gen.solver.chain.chain_costs import ChainCosts
from remat_gen.solver.chain.pareto_rows import Ints, Times


@dataclass(frozen=True, slots=True)
class MoveArrays:
    """Moves of one kind, by number.

    `need` bytes must fit by themselves; while the rest of the range runs, `held` are taken from
    it; `times` is what each re-runs.
    """

    need: Ints
    held: Ints
    times: Times

    @classmethod
    def of(cls, moves: list[tuple[int, int, float]]) -> MoveArrays:
        """Return moves by what they need, hold and re-run."""
        need, held, times = zip(*moves, strict=True) if moves else ((), (), ())
        return cls(np.array(need, np.int64), np.array(held, np.int64), np.array(times, np.float64))

    def as_bytes(self) -> tuple[bytes, bytes, bytes]:
        """Return what tells these from those of other ranges."""
        return self.need.tobytes(), self.held.tobytes(), self.times.tobytes()


class Moves:
    """All moves of one chain for given options per block."""

    def __init__(self, costs: ChainCosts, choices: Sequence[BlockChoices]) -> None:
        self.costs, self.choices = costs, choices
        self._advancing: dict[tuple[int, bool], MoveArrays] = {}
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

    def leaves(self, i: int, j: int) -> MoveArrays:
        """Return the moves that run block i alone, j = i + 1."""
        first, before = j == self.costs.n, self.costs.around_forward(i, i, j)
        moves = []
        for option in self.leaf_options(i, j):
            need = option.backward_peak_bytes + self.costs.around_backward[i]
            need = max(need, option.first_peak_bytes + before) if first else need
            moves.append((need, 0, option.rerun_us))
        return MoveArrays.of(moves)

    def inners(self, i: int, j: int) -> MoveArrays:
        """Return the moves that keep an option of block i around the range from i + 1."""
        first, around = j == self.costs.n, self.costs.around_forward(i, i, j)
        moves = []
        for option in self.choices[i].options:
            forward = option.first_peak_bytes if first else option.again_peak_bytes
            backward = option.backward_peak_bytes + self.costs.around_backward[i]
            time_us = option.rerun_us + (0.0 if first else option.again_us)
            moves.append((max(forward + around, backward), self.held(i, option), time_us))
        return MoveArrays.of(moves)

    def checkpoints(self, i: int, j: int) -> MoveArrays:
        """Return the moves that keep only f_k of blocks i … k-1 while the range from k runs."""
        around = 0 if j == self.costs.n else self.costs.around_forward(i, i, j)
        moves = self._advances_to(i, j)
        return MoveArrays(moves.need + around, moves.held, moves.times)

    def _advances_to(self, i: int, j: int) -> MoveArrays:
        first = j == self.costs.n
        if (i, first) not in self._advancing:
            self._advancing[i, first] = self._advances(i, first)
        found, count = self._advancing[i, first], j - i - 1
        return MoveArrays(found.need[:count], found.held[:count], found.times[:count])

    def _advances(self, i: int, first: bool) -> MoveArrays:
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
        return MoveArrays.of(found)
