"""A program as a timeline: when each value is made and read, in sorted arrays.

A touch is one number, (value, position, made or read) in this order of weight; sorted touches are
each value's history. A *stay* is what one run of its producer leaves: the touches from a making up
to the next one. What a search asks of a program (bytes, re-runs nobody reads, the next reader)
follows from these arrays, at a tenth of the cost of walking over the runs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

import numpy as np

from remat_gen.solver.improve.problem_arrays import (
    MADE,
    PLACE_BITS,
    READ,
    Flags,
    Ints,
    ProblemArrays,
)
from remat_gen.solver.law.program import Program

_PLACE = (1 << PLACE_BITS) - 1
Touches = TypeVar("Touches", int, Ints)


class Timeline:
    """Runs with the segment of each; nothing is changed once it is built."""

    def __init__(self, arrays: ProblemArrays, runs: Ints, segments: Ints, count: int) -> None:
        """Sort the touches of `runs`, which stand in `segments` of `count` in all."""
        self.arrays, self.runs, self.segments, self.count = arrays, runs, segments, count
        self.length = len(runs)
        self.first_backward = count // 2
        self.starts = np.searchsorted(segments, np.arange(count + 1))
        self.touches = np.sort(self._touches())
        self.begins = ((self.touches & 1) == MADE).nonzero()[0]
        self.ends = np.empty_like(self.begins)
        self.ends[:-1], self.ends[-1:] = self.begins[1:] - 1, len(self.touches) - 1
        self.reads = self.ends - self.begins
        begins = self.touches[self.begins]
        self.values: Ints = begins >> PLACE_BITS
        self.made_at = position_of(begins)
        self.last_at = position_of(self.touches[self.ends])

    def key(self, v: int, position: int, kind: int) -> int:
        """Return the number of a touch."""
        return (v << PLACE_BITS) + 2 * position + kind

    def _touches(self) -> Ints:
        arrays, runs = self.arrays, self.runs
        counts = arrays.counts[runs]
        ends = counts.cumsum()
        index = np.arange(ends[-1] if self.length else 0)
        index += (arrays.first[runs] - ends + counts).repeat(counts)
        keys = arrays.touches[index] + np.arange(0, 2 * self.length, 2).repeat(counts)
        appear = int(self.starts[self.first_backward])
        return np.concatenate((keys, (arrays.given << PLACE_BITS) + 2 * appear + MADE))

    @cached_property
    def firsts(self) -> Flags:
        """Tell for each position whether the operation runs there for the first time."""
        first = np.zeros(len(self.arrays.time_us), dtype=np.int64)
        first[self.runs[::-1]] = np.arange(self.length - 1, -1, -1)
        return np.asarray(first[self.runs] == np.arange(self.length))

    @cached_property
    def newest(self) -> Flags:
        """Tell for each stay whether it is its value's first."""
        found: Flags = np.append(True, self.values[1:] != self.values[:-1])[: len(self.values)]
        return found

    @cached_property
    def from_run(self) -> Flags:
        """Tell for each stay whether a run made it: given values appear by themselves."""
        return ~(self.newest & self.arrays.appears[self.values])

    @cached_property
    def time_us(self) -> float:
        """Return the time of all runs, summed in their order as the replay does."""
        return float(self.arrays.time_us[self.runs].cumsum()[-1]) if self.length else 0.0

    def breaks_pins(self) -> bool:
        """Tell whether a value that must be recomputed is there when backward begins."""
        if not self.arrays.any_recompute:
            return False
        turn = self.starts[self.first_backward]
        crossing = (self.made_at < turn) & (self.last_at >= turn)
        return bool((crossing & self.arrays.recompute[self.values]).any())

    def program(self) -> Program:
        runs, starts = self.runs.tolist(), self.starts.tolist()
        return Program(tuple(tuple(runs[a:b]) for a, b in pairwise(starts)))

    def pruned(self) -> Timeline:
        """Return the timeline without re-runs whose outputs nobody reads, or those alone read."""
        made = self.from_run
        reads = np.bincount(self.made_at[made], weights=self.reads[made], minlength=self.length)
        unread: list[int] = np.flatnonzero((reads == 0) & ~self.firsts).tolist()
        return self.without(unread) if unread else self

    def without(self, positions: list[int]) -> Timeline:
        """Return the pruned timeline without the re-runs at some positions."""
        stays = np.ones(self.length, dtype=np.bool_)
        stays[positions] = False
        return Timeline(self.arrays, self.runs[stays], self.segments[stays], self.count).pruned()

    def inserted(self, at: int, made: tuple[int, ...]) -> Timeline:
        """Return the timeline with runs before those at a position, in its segment."""
        runs = np.insert(self.runs, at, made)
        segments = np.insert(self.segments, at, [self.segments[at]] * len(made))
        return Timeline(self.arrays, runs, segments, self.count)

    def moved(self, y: int, z: int) -> Timeline:
        """Return the timeline with the run at y standing at z instead, in the same segment."""
        runs = self.runs.copy()
        low, high, by = (y, z + 1, -1) if y < z else (z, y + 1, 1)
        runs[low:high] = np.roll(runs[low:high], by)
        return Timeline(self.arrays, runs, self.segments, self.count)

    def is_there(self, v: int, at: int) -> bool:
        """Tell whether `v` was made before a position and is read at it or later."""
        touches = self.touch_list
        after = bisect_left(touches, self.key(v, at, MADE))
        if after == len(touches):
            return False
        touch = touches[after]
        return touch >> PLACE_BITS == v and touch & 1 == READ

    @cached_property
    def touch_list(self) -> list[int]:
        """Return the touches, for single look-ups."""
        touches: list[int] = self.touches.tolist()
        return touches

    @cached_property
    def run_list(self) -> list[int]:
        """Return the runs, for single look-ups."""
        runs: list[int] = self.runs.tolist()
        return runs

    @cached_property
    def _begin_list(self) -> list[int]:
        begins: list[int] = self.begins.tolist()
        return begins

    def stay(self, v: int, position: int, kind: int) -> int:
        """Return the stay that a touch belongs to."""
        touch = bisect_left(self.touch_list, self.key(v, position, kind))
        return bisect_right(self._begin_list, touch) - 1

    def touched_before(self, v: int, position: int) -> int:
        """Return where a value that is read at a position was touched last before."""
        touches = self.touch_list
        return position_of(touches[bisect_left(touches, self.key(v, position, READ)) - 1])

    @cached_property
    def touch_values(self) -> Ints:
        """Return the value of each touch."""
        return self.touches >> PLACE_BITS

    @cached_property
    def touch_positions(self) -> Ints:
        """Return the position of each touch."""
        return position_of(self.touches)

    @cached_property
    def stays(self) -> Ints:
        """Return the stay of each touch."""
        found: Ints = ((self.touches & 1) == MADE).cumsum() - 1
        return found


def position_of(touch: Touches) -> Touches:
    """Return the position of a touch, or of each of them."""
    return (touch & _PLACE) >> 1


def timeline_of(arrays: ProblemArrays, program: Program) -> Timeline:
    runs = np.array(program.flat(), dtype=np.int64)
    lengths = [len(segment) for segment in program.segments]
    segments = np.repeat(np.arange(len(lengths)), lengths)
    return Timeline(arrays, runs, segments, len(lengths))
