"""Best-first search over states: which values are there, which operations have run.

A* (Hart, Nilsson, Raphael 1968): a state's estimate is the time spent, every operation yet to run,
and the must-run closure of re-runs (`BitGraph.reruns`), which never overestimates. The least
estimate of what is open bounds every schedule from below at any time.

Freeing can always wait until an operation does not fit, and no more need go than makes it fit: a
schedule that frees earlier or more has less there at every later moment. So a run that does not fit
is open as well, with a part of what goes before it chosen: one value more is, or is not.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from remat_gen.solver.states.bit_graph import NEVER, BitGraph, SearchPhase
from remat_gen.solver.states.bit_sets import members

SearchState: TypeAlias = tuple[int, int]  # resident values, done operations


class Node(NamedTuple):
    """A state, its bytes, and the time of what has been run."""

    spent_us: float
    nbytes: int
    state: SearchState


@dataclass(frozen=True, slots=True)
class Run:
    """What runs next; `there` is what is there then if nothing goes, `over` what must go of it.

    `phase` is that after it, `base_us` what all costs but re-runs. What may go stands by price for
    its bytes; `bytes_from` are those from each value on.
    """

    node: Node
    operation: int
    phase: SearchPhase
    there: int
    base_us: float
    over: int
    values: Sequence[int]
    prices: Sequence[float]
    bytes_from: Sequence[int]


class Part(NamedTuple):
    """Of the values that may go before a run, those before the i-th that do: bytes, of all and
    of the smallest, and the time of what must run again for it.
    """

    run: Run
    i: int
    freed: int
    nbytes: int
    least: float
    again_us: float


@dataclass(slots=True)
class StateSearch:
    """A* for schedules within a budget that are quicker than `upper_us`.

    Afterwards `runs` is the optimum, if one below `upper_us` was found; `bound_us` holds for all
    schedules that the graph allows. `work` counts the runs and parts looked at, up to `limit`.
    """

    graph: BitGraph
    budget_bytes: int
    limit: int
    upper_us: float
    runs: tuple[int, ...] | None = None
    bound_us: float = 0.0
    work: int = 0
    _heap: list[tuple[float, int, int, int, Node | Part]] = field(default_factory=list)
    _spent: dict[SearchState, float] = field(default_factory=dict)
    _parent: dict[SearchState, tuple[SearchState, int]] = field(default_factory=dict)
    _pushed: int = 0

    def search(self) -> StateSearch:
        graph, phase = self.graph, self.graph.phase(0)
        resident = 0 if graph.forward else graph.given & (phase.useful | phase.pinned)
        start = Node(0.0, graph.bytes_of(resident), (resident, 0))
        self._spent[start.state] = 0.0
        self._push(phase.rest_us + graph.reruns(resident, phase)[1], start, start.nbytes)
        while self._heap:
            bound, _, _, _, found = heapq.heappop(self._heap)
            self.bound_us = max(self.bound_us, bound)
            node = found if isinstance(found, Node) else found.run.node
            if node.spent_us > self._spent[node.state]:
                continue
            if node.state[1] == graph.all:
                self.runs = self._path(node.state)
                return self
            if self.work >= self.limit:
                return self
            if isinstance(found, Node):
                self._expand(found, bound)
            else:
                self._choose(found)
        self.bound_us = max(self.bound_us, self.upper_us)
        return self

    def _expand(self, node: Node, bound: float) -> None:
        """Begin every run that may be next, or one alone where it had better not come later."""
        (resident, done), phase = node.state, self.graph.phase(node.state[1])
        runs = [
            self._run(node, p, phase)
            for p in members(phase.allowed)
            if not self.graph.reads[p] & ~resident
            and (not done >> p & 1 or self.graph.makes[p] & phase.useful & ~resident)
        ]
        for run in runs:
            if run.over <= 0 and (later_us := self._later(run, phase)) > bound:
                runs = [run]
                self._push(later_us, node, node.nbytes)
                break
        for run in runs:
            again_us = self.graph.reruns(run.there, run.phase)[1]
            self._go_on(Part(run, 0, 0, 0, NEVER, again_us))

    def _run(self, node: Node, p: int, before: SearchPhase) -> Run:
        graph, (resident, done) = self.graph, node.state
        self.work += 1
        there, phase = resident | graph.makes[p], graph.phase(done | 1 << p)
        if graph.forward & ~done and not graph.forward & ~done & ~(1 << p):
            there = (there | graph.given) & ~graph.recompute
        over = node.nbytes + graph.room[p] - self.budget_bytes
        priced = []
        if over > 0:
            read = phase.needed
            for q in members(graph.reruns(there, phase)[0]):
                read |= graph.reads[q]
            kept = read & there & ~graph.makes[p]
            for v in members(resident & ~graph.reads[p] & ~before.pinned):
                if nbytes := graph.nbytes[v]:
                    priced.append((self._price(v) if kept >> v & 1 else 0.0, nbytes, v))
            priced.sort(key=lambda item: (item[0] / item[1], -item[1], item[2]))
        prices, nbytes_of, values = zip(*priced, strict=True) if priced else ((), (), ())
        bytes_from = tuple(accumulate(reversed(nbytes_of), initial=0))[::-1]
        base_us = node.spent_us + graph.time_us[p] + phase.rest_us
        return Run(node, p, phase, there, base_us, over, values, prices, bytes_from)

    def _price(self, v: int) -> float:
        """Return what freeing a value costs at least: its re-run, if that makes nothing else."""
        p = self.graph.producer[v]
        if p < 0:
            return NEVER
        alone = self.graph.makes[p] == 1 << v or self.graph.again_us[p] == NEVER
        return self.graph.again_us[p] if alone else 0.0

    def _later(self, run: Run, phase: SearchPhase) -> float:
        """Return the least time of schedules in which a first run that fits had better be later.

        None is better if what the run adds takes no more than a value that goes with it: that one
        would stay until then, or be made again.
        """
        graph, (resident, done) = self.graph, run.node.state
        if done >> run.operation & 1:
            return 0.0
        left = run.there & (run.phase.useful | run.phase.pinned)
        added = graph.bytes_of(left & ~resident)
        gone = [v for v in members(resident & ~left) if graph.nbytes[v] >= added]
        again = (graph.reruns(resident & ~(1 << v), phase)[1] for v in gone)
        later_us = max((run.node.spent_us + phase.rest_us + us for us in again), default=0.0)
        return later_us if added else NEVER

    def _choose(self, part: Part) -> None:
        """Go on with the next value that may go, and without it."""
        self.work += 1
        graph, run = self.graph, part.run
        v = run.values[part.i]
        freed, nbytes = part.freed | 1 << v, graph.nbytes[v]
        left = run.there & ~(freed & ~graph.makes[run.operation])
        again_us, least = graph.reruns(left, run.phase)[1], min(part.least, nbytes)
        self._go_on(Part(run, part.i + 1, freed, part.nbytes + nbytes, least, again_us))
        self._go_on(part._replace(i=part.i + 1))

    def _go_on(self, part: Part) -> None:
        """Push a part, or, if a run fits without it but with nothing less, the state after it."""
        run, missing = part.run, part.run.over - part.nbytes
        time_us = run.base_us + part.again_us
        if missing <= 0:
            if part.least > -missing:
                self._after(run, part.freed, time_us)
            return
        if time_us >= self.upper_us or run.bytes_from[part.i] < missing:
            return
        for k in range(part.i, len(run.values)):  # a knapsack's bound
            size = self.graph.nbytes[run.values[k]]
            time_us += run.prices[k] * min(1.0, missing / size)
            missing -= size
            if missing <= 0:
                break
        self._push(time_us, part, run.node.nbytes - part.nbytes)

    def _after(self, run: Run, freed: int, time_us: float) -> None:
        """Push the state after a run before which some values go."""
        graph, p, (resident, done) = self.graph, run.operation, run.node.state
        spent_us = run.node.spent_us + graph.time_us[p]
        left = run.there & ~(freed & ~graph.makes[p]) & (run.phase.useful | run.phase.pinned)
        state = left, done | 1 << p
        if time_us < self.upper_us and spent_us < self._spent.get(state, NEVER):
            nbytes = run.node.nbytes + graph.bytes_of(left & ~resident)
            nbytes -= graph.bytes_of(resident & ~left)
            self._spent[state], self._parent[state] = spent_us, (run.node.state, p)
            self._push(time_us, Node(spent_us, nbytes, state), nbytes)

    def _push(self, bound: float, found: Node | Part, nbytes: int) -> None:
        """Let something wait for its turn; of equals what has run more goes first."""
        if bound < self.upper_us:
            self._pushed += 1
            done = found.state[1] if isinstance(found, Node) else found.run.node.state[1]
            left = self.graph.count - done.bit_count() - isinstance(found, Part)
            heapq.heappush(self._heap, (bound, left, nbytes, self._pushed, found))

    def _path(self, state: SearchState) -> tuple[int, ...]:
        runs = []
        while state in self._parent:
            state, operation = self._parent[state]
            runs.append(operation)
        return tuple(reversed(runs))
