"""Which values to free so that an operation fits: all minimal sets within a limit of time.

Freeing can always wait until an operation does not fit, and no more need go than makes it fit: a
schedule that frees earlier or more has less there at every later moment. A set's price is what it
adds to the must-run closure (`BitGraph.reruns`); it only grows as the set grows. The rest of a
set is bounded from below by the fractional knapsack over each value's own re-run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

from remat_gen.solver.states.bit_graph import NEVER, BitGraph, SearchPhase
from remat_gen.solver.states.bit_sets import members


@dataclass(slots=True)
class Evictions:
    """The sets of one operation: `resident` is what is there while it runs, its outputs included.

    `phase` is that after the run; `base_us` what all costs besides re-runs; `over` the bytes to be
    freed. What the operation itself makes is there again after it, also if it had to go before;
    candidates that are not resident are gone in any case. After `collect`, `beyond_us` is a lower
    bound of the time of every set that was left out, and `work` counts the sets looked at,
    `most_work` at most.
    """

    graph: BitGraph
    phase: SearchPhase
    resident: int
    made: int
    base_us: float
    limit_us: float
    over: int
    most_work: int
    found: list[tuple[int, float]] = field(default_factory=list)
    beyond_us: float = NEVER
    work: int = 0
    _values: list[int] = field(default_factory=list)
    _price: list[float] = field(default_factory=list)
    _bytes_from: list[int] = field(default_factory=list)

    def collect(self, candidates: int) -> list[tuple[int, float]]:
        """Return the minimal sets among `candidates`, each with the time that it leads to."""
        again, again_us = self.graph.reruns(self.resident, self.phase)
        time_us = self.base_us + again_us
        if time_us > self.limit_us:
            self.beyond_us = time_us
        elif self.over <= 0:
            self.found.append((0, time_us))
        else:
            self._sort(candidates, again)
            self._extend(0, 0, 0, NEVER, time_us)
        return self.found

    def _sort(self, candidates: int, again: int) -> None:
        graph = self.graph
        read = self.phase.needed
        for p in members(again):
            read |= graph.reads[p]
        priced = []
        for v in members(candidates):
            if nbytes := graph.nbytes[v]:
                priced.append((self._own_price(v, read), nbytes, v))
        priced.sort(key=lambda item: (item[0] / item[1], -item[1], item[2]))
        self._values = [v for _, _, v in priced]
        self._price = [price for price, _, _ in priced]
        rising = accumulate((nbytes for _, nbytes, _ in reversed(priced)), initial=0)
        self._bytes_from = list(rising)[::-1]

    def _own_price(self, v: int, read: int) -> float:
        """Return what freeing a value costs at least: its re-run, if that makes nothing else."""
        p = self.graph.producer[v]
        if not read >> v & 1 or self.made >> v & 1 or not self.resident >> v & 1:
            return 0.0
        if p < 0:
            return NEVER
        alone = self.graph.makes[p] == 1 << v or self.graph.again_us[p] == NEVER
        return self.graph.again_us[p] if alone else 0.0

    def _extend(self, i: int, chosen: int, freed: int, least: float, time_us: float) -> None:
        """Extend a set by values from the i-th on; `least` is its smallest member's bytes."""
        self.work += 1
        if freed >= self.over:
            if freed - least < self.over:
                self.found.append((chosen, time_us))
            return
        missing = self.over - freed
        if self._bytes_from[i] < missing:
            return
        bound = time_us + self._knapsack(i, missing)
        if bound > self.limit_us or self.work > self.most_work:
            self.beyond_us = min(self.beyond_us, bound)
            return
        v = self._values[i]
        more = chosen | 1 << v
        _, again_us = self.graph.reruns(self.resident & ~(more & ~self.made), self.phase)
        with_v = self.base_us + again_us
        if with_v > self.limit_us:
            self.beyond_us = min(self.beyond_us, with_v)
        else:
            nbytes = self.graph.nbytes[v]
            self._extend(i + 1, more, freed + nbytes, min(least, nbytes), with_v)
        self._extend(i + 1, chosen, freed, least, time_us)

    def _knapsack(self, i: int, missing: int) -> float:
        """Return the least price of `missing` bytes among the values from the i-th on."""
        price, nbytes = 0.0, self.graph.nbytes
        for k in range(i, len(self._values)):
            size = nbytes[self._values[k]]
            if size >= missing:
                return price + self._price[k] * missing / size
            price += self._price[k]
            missing -= size
        return NEVER
