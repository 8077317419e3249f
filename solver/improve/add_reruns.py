"""Which re-runs to add where a program is over its budget: the cheapest by what they take off.

A value that is there only for a later read can be given up if its operation runs again before that
read, and with it whatever that operation needs and is not there. The price of such a *chain* of
re-runs is its time over what all the values that it makes again take off together.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from remat_gen.solver.improve.memory_measure import MemoryExcess, Trial
from remat_gen.solver.improve.problem_arrays import PLACE_BITS, READ, ProblemArrays
from remat_gen.solver.improve.run_timeline import Timeline, position_of
from remat_gen.solver.law.sums import added

CHAIN = 16  # operations of one chain at most
SAME = 1.001
LOOKED = 24  # values whose chains are priced, the most promising ones
USUAL_DEPTH = 2.0
OFTEN = 0.2
SPREAD = 2.0
DEPTHS = (0.5, 1.0, 2.0, 4.0, 16.0, float("inf"))


@dataclass(frozen=True, slots=True)
class Addition:
    """Operations to run again before the run at position `at`; `gain` is what they take off."""

    price: float
    at: int
    operations: tuple[int, ...]
    gain: int


class PriceRule:
    """How chains are chosen: a missing input is made again where that costs at most `depth` times
    the price of the value itself, else it is retained. Prices of different chains vary by a factor
    of up to `spread`; those of the same chain in identical layers by the same one.
    """

    def __init__(self, depth: float = USUAL_DEPTH, spread: float = 1.0) -> None:
        self.depth, self.spread = depth, spread
        self._factors: dict[tuple[object, ...], float] = {}

    def factor(self, operations: tuple[int, ...], arrays: ProblemArrays, random: Random) -> float:
        """Return the factor of a chain's price."""
        if self.spread == 1:
            return 1.0
        kind = tuple(arrays.kinds_of[p] for p in operations)
        if kind not in self._factors:
            self._factors[kind] = float(self.spread ** (2 * random.random() - 1))
        return self._factors[kind]


def random_taste(random: Random) -> PriceRule:
    """Return the usual taste, or mostly another one."""
    if random.random() < OFTEN:
        return PriceRule()
    return PriceRule(DEPTHS[int(random.random() * len(DEPTHS))], SPREAD)


def additions(
    trial: Trial, excess: MemoryExcess, time_left: float, taste: PriceRule, random: Random
) -> list[Addition]:
    """Return what can be added within `time_left`, the cheapest first."""
    timeline = trial.timeline
    found: dict[tuple[int, tuple[int, ...]], Addition] = {}
    for v, at, unit_price in _promising(timeline, excess, time_left):
        made = _chain(timeline, v, at, taste.depth * unit_price)
        if not made or (at, made) in found:
            continue
        time_us = added(timeline.arrays.times[p] for p in made)
        gain = min(excess.total, sum(_gains(timeline, excess, made, at)))
        if gain and time_us < time_left:
            price = taste.factor(made, timeline.arrays, random) * time_us / gain
            found[at, made] = Addition(price, at, made, gain)
    return sorted(found.values(), key=lambda a: (a.price, a.at, a.operations))


def alike(found: list[Addition], total: int) -> list[Addition]:
    """Return the first addition and, as far as `total` needs them, others of the same price.

    They are the same exchange in identical layers. Their operations are disjoint.
    """
    chosen: list[Addition] = []
    made: set[int] = set()
    gain = 0
    for addition in found:
        dearer = addition.price > found[0].price * SAME
        if dearer or gain >= total:
            break
        if made.isdisjoint(addition.operations):
            chosen.append(addition)
            made.update(addition.operations)
            gain += addition.gain
    return chosen


def _promising(
    timeline: Timeline, excess: MemoryExcess, time_left: float
) -> Iterator[tuple[int, int, float]]:
    """Yield values that lie idle over the budget, where they are read next, and a least price."""
    arrays = timeline.arrays
    values, positions = timeline.touch_values, timeline.touch_positions
    start, stop, v = positions[:-1] + 1, positions[1:], values[1:]
    idle = (values[:-1] == v) & ((timeline.touches[1:] & 1) == READ) & (stop > start)
    later = stop >= timeline.starts[timeline.first_backward]  # forward runs each operation once
    idle &= later & arrays.remakeable[v]
    idle &= excess.counts[stop] > excess.counts[np.minimum(start, stop)]
    start, stop, v = start[idle], stop[idle], v[idle]
    over = excess.sums[stop] - excess.sums[start]
    gain = np.minimum(over, arrays.nbytes[v] * (excess.counts[stop] - excess.counts[start]))
    time_us = arrays.time_us[arrays.producer_of[v]]
    price = time_us / np.maximum(gain, 1)
    affordable = np.flatnonzero(time_us < time_left)
    order = affordable[np.argsort(price[affordable], kind="stable")[:LOOKED]]
    yield from zip(v[order].tolist(), stop[order].tolist(), price[order].tolist(), strict=True)


def _chain(timeline: Timeline, v: int, at: int, dearest: float) -> tuple[int, ...]:
    """Return the operations that make `v` again before position `at`; empty if too many."""
    arrays = timeline.arrays
    chosen: set[int] = set()
    stack = [arrays.producers[v]]
    while stack:
        p = stack.pop()
        if p in chosen:
            continue
        if len(chosen) == CHAIN:
            return ()
        chosen.add(p)
        for u in arrays.problem.operations[p].inputs:
            if arrays.may_go[u] and not timeline.is_there(u, at):
                q = arrays.producers[u]
                if arrays.times[q] <= dearest * arrays.sizes[u]:
                    stack.append(q)
    return tuple(sorted(chosen))


def _gains(
    timeline: Timeline, excess: MemoryExcess, made: tuple[int, ...], at: int
) -> Iterator[int]:
    """Yield what the area falls by, at most, for each value made again at a position."""
    arrays, touches = timeline.arrays, timeline.touch_list
    for p in made:
        for u in arrays.problem.operations[p].outputs:
            after = bisect_left(touches, timeline.key(u, at, 0))
            if 0 < after < len(touches):
                before, next_one = touches[after - 1], touches[after]
                same = before >> PLACE_BITS == u == next_one >> PLACE_BITS
                if same and next_one & 1 == READ:
                    start = position_of(before) + 1
                    yield excess.gain(arrays.sizes[u], start, at) if start < at else 0
