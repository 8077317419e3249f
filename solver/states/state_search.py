"""Best-first search over states: which values are there, which operations have run.

A* (Hart, Nilsson, Raphael 1968) with partial expansion (Yoshizumi, Miura, Ishida 2000): a state's
estimate is the time spent, plus every operation yet to run, plus the must-run closure of
re-runs, which never overestimates. The least estimate of the open states bounds every schedule
from below at any time. States are expanded again with a higher limit only where their children
within the lower one did not do.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TypeAlias

from remat_gen.solver.states.bit_graph import NEVER, BitGraph
from remat_gen.solver.states.bit_sets import members
from remat_gen.solver.states.evictions import Evictions

SearchState: TypeAlias = tuple[int, int]  # resident values, done operations


@dataclass(frozen=True, slots=True)
class Child:
    """A state after one more run: `time_us` is its estimate, `spent_us` what has been run."""

    time_us: float
    spent_us: float
    nbytes: int
    state: SearchState
    operation: int


@dataclass(slots=True)
class Expander:
    """Make the children of states within a budget; `work` counts what that took, up to `limit`."""

    graph: BitGraph
    budget_bytes: int
    limit: int
    work: int = 0
    beyond_us: float = NEVER

    def start(self) -> Child:
        phase = self.graph.phase(0)
        resident = 0 if self.graph.forward else self.graph.given & (phase.useful | phase.pinned)
        _, again_us = self.graph.reruns(resident, phase)
        nbytes = self.graph.bytes_of(resident)
        return Child(phase.rest_us + again_us, 0.0, nbytes, (resident, 0), -1)

    def children(self, parent: Child, limit_us: float) -> list[Child]:
        """Return the children up to a limit; `beyond_us` then bounds those left out."""
        self.beyond_us = NEVER
        resident, done = parent.state
        phase = self.graph.phase(done)
        found: list[Child] = []
        for p in members(phase.allowed):
            makes = self.graph.makes[p]
            if self.graph.reads[p] & ~resident:
                continue
            if done >> p & 1 and not makes & phase.useful & ~resident:
                continue
            children = self._run(parent, p, limit_us)
            if not done >> p & 1 and self._harmless(parent, children, limit_us):
                return children
            found += children
        return found

    def _run(self, parent: Child, p: int, limit_us: float) -> list[Child]:
        """Return the children that run `p` next, one for each set freed before."""
        graph, (resident, done) = self.graph, parent.state
        done_then = done | 1 << p
        phase = graph.phase(done_then)
        spent = parent.spent_us + graph.time_us[p]
        over = parent.nbytes + graph.room[p] - self.budget_bytes
        there = resident | graph.makes[p]
        if graph.forward & ~done and not graph.forward & ~done_then:
            there = (there | graph.given) & ~graph.recompute
        base = spent + phase.rest_us
        made, work = graph.makes[p], self.limit - self.work
        evictions = Evictions(graph, phase, there, made, base, limit_us, over, work)
        candidates = resident & ~graph.reads[p] & ~graph.phase(done).pinned
        sets = evictions.collect(candidates)
        self.work += 1 + evictions.work
        self.beyond_us = min(self.beyond_us, evictions.beyond_us)
        found = []
        for freed, time_us in sets:
            left = there & ~(freed & ~made) & (phase.useful | phase.pinned)
            nbytes = parent.nbytes + graph.bytes_of(left & ~resident)
            nbytes -= graph.bytes_of(resident & ~left)
            found.append(Child(time_us, spent, nbytes, (left, done_then), p))
        return found

    def _harmless(self, parent: Child, children: list[Child], limit_us: float) -> bool:
        """Tell whether an operation's first run now cannot be worse than later.

        So it is if nothing had to go for it and what it adds takes no more than a value that goes
        with it and would otherwise stay until then, since making it again is beyond the limit.
        """
        if len(children) != 1:
            return False
        child, graph = children[0], self.graph
        resident, done = parent.state
        if parent.nbytes + graph.room[child.operation] > self.budget_bytes:
            return False
        added = graph.bytes_of(child.state[0] & ~resident)
        if added == 0:
            return True
        phase = graph.phase(done)
        for v in members(resident & ~child.state[0]):
            if graph.nbytes[v] >= added:
                _, again_us = graph.reruns(resident & ~(1 << v), phase)
                without = parent.spent_us + phase.rest_us + again_us
                if without > limit_us:
                    self.beyond_us = min(self.beyond_us, without)
                    return True
        return False


@dataclass(slots=True)
class StateSearch:
    """A* for schedules quicker than `upper_us`, in steps of `slack_us`.

    Afterwards `runs` is the optimum, if one below `upper_us` was found; `bound_us` holds for all
    schedules that the graph allows.
    """

    expander: Expander
    upper_us: float
    slack_us: float
    runs: tuple[int, ...] | None = None
    bound_us: float = 0.0
    _heap: list[tuple[float, int, int, int, float, Child]] = field(default_factory=list)
    _spent: dict[SearchState, float] = field(default_factory=dict)
    _parent: dict[SearchState, tuple[SearchState, int]] = field(default_factory=dict)
    _pushed: int = 0

    def search(self) -> StateSearch:
        start = self.expander.start()
        self._spent[start.state] = 0.0
        self._push(start.time_us, start, self.slack_us)
        while self._heap:
            bound, _, _, _, slack, state = heapq.heappop(self._heap)
            self.bound_us = max(self.bound_us, bound)
            if state.spent_us > self._spent[state.state]:
                continue
            if state.state[1] == self.expander.graph.all:
                self.runs = self._path(state.state)
                return self
            if self.expander.work >= self.expander.limit:
                return self
            self._expand(state, bound, slack)
        self.bound_us = max(self.bound_us, self.upper_us)
        return self

    def _expand(self, state: Child, bound: float, slack: float) -> None:
        """Push the children up to a limit, and the state again for those beyond it.

        Each time the limit is farther ahead: an expansion costs, however few children are new.
        """
        limit = min(bound + slack, self.upper_us)
        for child in self.expander.children(state, limit):
            known = self._spent.get(child.state)
            if known is None or child.spent_us < known:
                self._spent[child.state] = child.spent_us
                self._parent[child.state] = state.state, child.operation
                self._push(child.time_us, child, self.slack_us)
        beyond = self.expander.beyond_us
        if beyond < self.upper_us:
            self._push(beyond, state, 2 * slack)

    def _push(self, bound: float, state: Child, slack: float) -> None:
        if bound >= self.upper_us:
            return
        self._pushed += 1
        left = self.expander.graph.count - state.state[1].bit_count()
        item = (bound, left, state.nbytes, self._pushed, slack, state)
        heapq.heappush(self._heap, item)

    def _path(self, state: SearchState) -> tuple[int, ...]:
        runs = []
        while state in self._parent:
            state, operation = self._parent[state]
            runs.append(operation)
        return tuple(reversed(runs))
