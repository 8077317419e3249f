"""The chain recurrence over memory slots: the least extra time for every budget at once.

T(i, j, m) is the least time of re-runs when blocks i … j-1 go forward and back, with f_i retained
outside of m and everything else, g_j included, inside m. It is rotor's recurrence (Beaumont et al.,
"Optimal checkpointing for heterogeneous chains", 2019) with several options per block as in
Rockmate (Zhao et al., 2023) and frontiers instead of single values. Slots are a fraction of the
peak with nothing re-run and are rounded against the user; the replay tells what is really used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from remat_gen.solver.moves import Move, Moves
from remat_gen.solver.plan import Checkpoint, Inner, Leaf, Plan

Times = npt.NDArray[np.float64]
Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class _Range:
    """T(i, j, ·) and the number of the choice that attains it."""

    times: Times
    choices: npt.NDArray[np.int16]

    def offer(self, number: int, start: int, times: Times | float) -> None:
        """Take a choice with `times` at slots start … where it is strictly better."""
        if start >= len(self.times):
            return
        target = self.times[start:]
        better = times < target
        self.choices[start:][better] = number
        np.minimum(target, times, out=target)


class ChainTable:
    """The filled table of one chain for every number of slots up to `size`."""

    def __init__(
        self, moves: Moves, slot_bytes: Fraction, size: int, progress: Progress | None = None
    ) -> None:
        self.moves, self.slot_bytes, self.size = moves, slot_bytes, size
        self.n = moves.costs.n
        self.ranges: dict[tuple[int, int], _Range] = {}
        for length in range(1, self.n + 1):
            for i in range(self.n - length + 1):
                self.ranges[i, i + length] = self._filled(i, i + length)
            if progress:
                progress("chain", length, self.n)

    def steps(self) -> list[int]:
        """Return the slots at which T(0, n, ·) falls, in order."""
        times = self.ranges[0, self.n].times
        falls = np.flatnonzero(times < np.concatenate(([np.inf], times[:-1])))
        return [int(m) for m in falls]

    def plan(self, m: int) -> Plan:
        """Return the plan behind T(0, n, m)."""
        return self._plan(0, self.n, m)

    def _filled(self, i: int, j: int) -> _Range:
        row = _Range(np.full(self.size + 1, np.inf), np.zeros(self.size + 1, dtype=np.int16))
        if j == i + 1:
            for move in self.moves.leaves(i, j):
                row.offer(move.number, self._slots(move.need_bytes), move.time_us)
            return row
        for move in self.moves.inners(i, j):
            start, held = self._start(move)
            rest = self.ranges[i + 1, j].times[start - held : self.size + 1 - held]
            row.offer(move.number, start, rest + move.time_us)
        for move in self.moves.checkpoints(i, j):
            start, held = self._start(move)
            later = self.ranges[-move.number, j].times[start - held : self.size + 1 - held]
            again = self.ranges[i, -move.number].times[start:]
            row.offer(move.number, start, later + again + move.time_us)
        return row

    def _start(self, move: Move) -> tuple[int, int]:
        """Return the first slot at which a move may fit, and the slots it holds."""
        held = self._slots(move.held_bytes)
        return min(max(self._slots(move.need_bytes), held), self.size + 1), held

    def _slots(self, nbytes: int) -> int:
        return -(-nbytes * self.slot_bytes.denominator // self.slot_bytes.numerator)

    def _plan(self, i: int, j: int, m: int) -> Plan:
        number = int(self.ranges[i, j].choices[m])
        if j == i + 1:
            return Leaf(i, self.moves.leaf_options(i, j)[number])
        if number >= 0:
            move = next(move for move in self.moves.inners(i, j) if move.number == number)
            rest = self._plan(i + 1, j, m - self._slots(move.held_bytes))
            return Inner(i, self.moves.choices[i].options[number], rest)
        move = next(move for move in self.moves.checkpoints(i, j) if move.number == number)
        later = self._plan(-number, j, m - self._slots(move.held_bytes))
        return Checkpoint(i, -number, later, self._plan(i, -number, m))
