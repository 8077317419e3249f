"""The rows of the stage program (`stage_program.py` says what they mean)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from remat_gen.solver.stages.first_run_order import FirstRuns
from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import members

ANY = float("inf")
SCALED_BUDGET = 1000.0


@dataclass(slots=True)
class StageRows:
    """Rows `low <= A x <= high` with A in `entries` (row, column, factor), and bounds of x.

    X[q,i], E[q], K[v,i] and S[v,i], i from 1 in the last two, are columns `x`, `e`, `k`, `s` of A.
    """

    graph: BitGraph
    order: FirstRuns
    budget_bytes: int
    stages: tuple[int, ...]
    entries: list[tuple[int, int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    high: list[float] = field(default_factory=list)
    least: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    most: npt.NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))

    @property
    def size(self) -> int:
        """Return the number of variables: X and E per operation, K and S per value."""
        m = len(self.stages)
        return (m + 2) * self.graph.count + 2 * m * len(self.graph.nbytes)

    def x(self, q: int, i: int) -> int:
        return i * self.graph.count + q

    def e(self, q: int) -> int:
        return (len(self.stages) + 1) * self.graph.count + q

    def k(self, v: int, i: int) -> int:
        return (len(self.stages) + 2) * self.graph.count + (i - 1) * len(self.graph.nbytes) + v

    def s(self, v: int, i: int) -> int:
        return self.k(v, i) + len(self.stages) * len(self.graph.nbytes)

    def integral(self) -> npt.NDArray[np.float64]:
        """Return 1 for variables that are whole: all but S, which its rows make so."""
        whole = np.ones(self.size)
        whole[self.size - len(self.stages) * len(self.graph.nbytes) :] = 0
        return whole

    def build(self, within: Iterable[tuple[int, int]] = ()) -> bool:
        """Add all rows; False where a stage alone exceeds the budget.

        Those `within` hold for an operation in the interval that a stage begins.
        """
        self.least, self.most = np.zeros(self.size), np.ones(self.size)
        m = len(self.stages)
        for q in range(self.graph.count):
            self.most[self.e(q)] = m + 1 if self.graph.rerunnable >> q & 1 else 0
            self.least[self.e(q)] = 1 if self.graph.forced >> q & 1 else 0
            intervals = [(self.x(q, i), 1.0) for i in range(m + 1)]
            self._row(intervals, 1.0, ANY)
            self._row([*intervals, (self.e(q), -1.0)], -ANY, 1.0)
        for i in range(m + 1):
            self._interval(i)
        fits = all([self._stage(i) for i in range(1, m + 1)])
        for q, p in within:
            self._within(q, self.stages.index(p) + 1)
        return fits

    def _within(self, q: int, i: int) -> None:
        """Let memory hold while `q` runs in interval i, 0 < i < m."""
        graph, scale = self.graph, self._scale()
        own = graph.reads[q] | graph.makes[q]
        need = graph.bytes_of(graph.reads[q]) + graph.room[q]
        terms = [(self.x(q, i), need * scale)]
        for v, nbytes in enumerate(graph.nbytes):
            if own >> v & 1 or not nbytes:
                continue
            terms.append((self.s(v, i), nbytes * scale))
            spans = [(self.s(v, i), 1.0), (self.k(v, i), -1.0), (self.k(v, i + 1), -1.0)]
            if graph.producer[v] >= 0:
                spans.append((self.x(graph.producer[v], i), 1.0))
            self._row(spans, -1.0, ANY)
        self._row(terms, -ANY, self.budget_bytes * scale)

    def _row(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        r = len(self.low)
        self.entries.extend((r, column, factor) for column, factor in terms)
        self.low.append(low)
        self.high.append(high)

    def _scale(self) -> float:
        """Return the unit of the memory rows: a tolerance of HiGHS's is then a part in 1e9."""
        return SCALED_BUDGET / max(self.budget_bytes, 1)

    def _stage(self, i: int) -> bool:
        """Add the rows of stage i; False where its operation alone exceeds the budget."""
        graph, p = self.graph, self.stages[i - 1]
        made = graph.made_by(self.order.before[p]) | (0 if self._in_forward(i) else graph.given)
        certain = graph.reads[p] | graph.makes[p] | (self.order.held[p] & made)
        for v in range(len(graph.nbytes)):
            if certain >> v & 1:
                self.least[self.k(v, i)] = 1
            self._carry(v, i)
        room, scale = self.budget_bytes - graph.room[p], self._scale()
        others = [v for v in range(len(graph.nbytes)) if not graph.makes[p] >> v & 1]
        self._row([(self.k(v, i), graph.nbytes[v] * scale) for v in others], -ANY, room * scale)
        return room >= graph.bytes_of(graph.reads[p])

    def _carry(self, v: int, i: int) -> None:
        """Let a value be there at stage i only if it was there before or was made since."""
        p, maker = self.stages[i - 1], self.graph.producer[v]
        here = self.k(v, i)
        if maker < 0:
            if self._in_forward(i):
                self.most[here] = 0
            elif i > self._turn() + 1:
                self._row([(here, 1.0), (self.k(v, i - 1), -1.0)], -ANY, 0.0)
            return
        if self.order.after[p] >> maker & 1:
            self.most[here] = 0
            return
        sources = [self.x(maker, i - 1)] + ([self.k(v, i - 1)] if i > 1 else [])
        self._row([(here, 1.0), *((column, -1.0) for column in sources)], -ANY, 0.0)
        if self.order.held[p] >> v & 1 and not self.least[here]:
            for column in sources:
                self._row([(here, 1.0), (column, -1.0)], 0.0, ANY)

    def _interval(self, i: int) -> None:
        """Add the rows of interval i, which ends with the first run of stage i + 1."""
        barred = self._barred(i)
        last = self.stages[i] if i < len(self.stages) else -1
        for q in range(self.graph.count):
            column = self.x(q, i)
            if barred >> q & 1:
                self.most[column] = 0
                continue
            if q == last:
                self.least[column] = 1
            for v in members(self.graph.reads[q]):
                self._need(column, v, i)

    def _barred(self, i: int) -> int:
        """Return the operations that cannot run in interval i: too late, too early, or again."""
        barred = 0
        if i < len(self.stages):
            barred |= self.order.after[self.stages[i]]
        if i > 0:
            p = self.stages[i - 1]
            already = self.order.before[p] | 1 << p
            again = i < len(self.stages) and self._in_forward(i + 1)
            barred |= already if again else already & ~self.graph.rerunnable
        return barred

    def _need(self, column: int, v: int, i: int) -> None:
        """Let an operation run in interval i only where a value it reads is there."""
        maker = self.graph.producer[v]
        if maker < 0 and i <= self._turn():
            return  # a given value appears in this interval, or its reader cannot run in it
        terms = [(column, 1.0)]
        if maker >= 0:
            terms.append((self.x(maker, i), -1.0))
        if i > 0:
            terms.append((self.k(v, i), -1.0))
        self._row(terms, -ANY, 0.0)

    def _turn(self) -> int:
        """Return the interval in which backward begins."""
        return sum(self._in_forward(i) for i in range(1, len(self.stages) + 1))

    def _in_forward(self, i: int) -> bool:
        return bool(self.graph.forward >> self.stages[i - 1] & 1)
