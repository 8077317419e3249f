"""A problem and a program of it as arrays: when each value is made and read.

A touch is one number, (value, position, made or read) in this order of weight; sorted touches are
each value's history. A *stay* is what one run of its producer leaves: the touches from a making up
to the next one. All that a search asks follows, at a tenth of the cost of walking over the runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import accumulate, pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from remat_gen.solver.law.pins import made_again
from remat_gen.solver.law.problem import Held, Operation, Problem
from remat_gen.solver.law.program import Program

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MADE, READ = 0, 1  # in this order: a given value is there before the first step that reads it
PLACE_BITS = 32  # of a touch: twice the position, and made or read; what is above is the value
_PLACE = (1 << PLACE_BITS) - 1
Touches = TypeVar("Touches", int, Ints)


class ProblemArrays:
    """Backward operations run again in bare graphs only.

    Operation p has the touches `touches[first[p]:first[p] + counts[p]]`, as at position 0.
    `given` leaves out what is freed unread; `appears` marks the values in it. `read_bytes` are
    those of an operation's inputs that can be freed; `remakeable` values take memory, can be freed
    and made again. `may_go` are those that can be made again, with or without bytes; `producer_of`
    has 0 for given values. `times`, `sizes` and `may_go` are lists, for single look-ups;
    `kinds_of` are equal for operations that do the same work. `recompute` marks the values that
    must not be there when backward begins.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        operations, values = problem.operations, problem.values
        self.times = [o.time_us for o in operations]
        self.time_us = np.array(self.times, dtype=np.float64)
        self.extra_bytes = _ints([problem.extra_bytes(o) for o in operations])
        self.kinds_of: list[object] = [o.signature or p for p, o in enumerate(operations)]
        self.ordered = _flags([o.ordered for o in operations])
        self.sizes = [value.nbytes for value in values]
        self.nbytes = _ints(self.sizes)
        self.free = _flags([value.held is Held.FREE for value in values])
        self.to_the_end = _flags([value.held is Held.STEP for value in values])
        self.recompute = _flags([value.recompute for value in values])
        self.any_recompute = bool(self.recompute.any())
        counts = [len(o.inputs) + len(o.outputs) for o in operations]
        self.touches = _ints([touch for operation in operations for touch in _touches(operation)])
        self.first = _ints([0, *accumulate(counts)][:-1])
        self.counts = _ints(counts)
        read = {v for operation in operations for v in operation.inputs}
        self.given = _ints([v for v in problem.given if not self.free[v] or v in read])
        self.appears = np.zeros(len(values), dtype=np.bool_)
        self.appears[self.given] = True
        free_reads = ([v for v in o.inputs if self.free[v]] for o in operations)
        self.read_bytes = _ints([sum(self.sizes[v] for v in read) for read in free_reads])
        again = made_again(problem, operations[: problem.forward_count] or operations)
        self.may_go = [v in again for v in range(len(values))]
        self.remakeable = _flags(self.may_go) & (self.nbytes > 0)
        self.producers = problem.producers()
        self.producer_of = _ints([self.producers.get(v, 0) for v in range(len(values))])


def _touches(operation: Operation) -> Iterator[int]:
    yield from ((v << PLACE_BITS) + READ for v in operation.inputs)
    yield from ((v << PLACE_BITS) + MADE for v in operation.outputs)


def _ints(numbers: list[int]) -> Ints:
    return np.array(numbers, dtype=np.int64)


def _flags(truths: list[bool]) -> Flags:
    return np.array(truths, dtype=np.bool_)


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
        runs = np.insert(np.delete(self.runs, y), z, self.runs[y])
        return Timeline(self.arrays, runs, self.segments, self.count)

    def idle_since(self, v: int, at: int) -> int | None:
        """Return where `v` was touched last before a position, None where nothing reads it there
        or later as it is.
        """
        touches = self.touch_list
        after = bisect_left(touches, (v << PLACE_BITS) + 2 * at)
        if after == len(touches) or touches[after] >> PLACE_BITS != v or touches[after] & 1 == MADE:
            return None
        return position_of(touches[after - 1])

    @cached_property
    def touch_list(self) -> list[int]:
        found: list[int] = self.touches.tolist()  # for single look-ups
        return found

    @cached_property
    def touch_values(self) -> Ints:
        return self.touches >> PLACE_BITS

    @cached_property
    def touch_positions(self) -> Ints:
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
