"""A problem as bit masks, and what follows from the operations that ran: the *phase*."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.law.pins import forced, recomputed
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.sums import added
from remat_gen.solver.states.bit_sets import mask_of, members, union

NEVER = float("inf")  # the time of a re-run that the law forbids


@dataclass(frozen=True, slots=True)
class SearchPhase:
    """What one set of done operations implies.

    `made` values have been made once. `needed` ones are read by operations yet to run first;
    `useful` ones also by operations that may run again for them. `pinned` ones cannot be freed.
    `allowed` operations may run now, where their inputs are there. `rest_us` is the time of all
    operations yet to run first.
    """

    made: int
    needed: int
    useful: int
    pinned: int
    allowed: int
    rest_us: float


class BitGraph:
    """Masks over operations (`reads`, `makes` per operation) and over values.

    A bare graph (every operation backward and rerunnable) may run in any order that its inputs
    allow. A training problem runs its forward operations first, in traced order, each once; then
    the backward ones in any order within the segments of `partition`, which release what they hold.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        operations = problem.operations
        self.count = len(operations)
        self.all = (1 << self.count) - 1
        self.time_us = _rounded([o.time_us for o in operations])
        self.nbytes = [v.nbytes for v in problem.values]
        self.reads = [mask_of(o.inputs) for o in operations]
        self.makes = [mask_of(o.outputs) for o in operations]
        made = [sum(self.nbytes[v] for v in o.outputs) for o in operations]
        extra = [problem.extra_bytes(o) for o in operations]
        self.room = [a + b for a, b in zip(made, extra, strict=True)]
        self.readers = [0] * len(problem.values)
        for p, operation in enumerate(operations):
            for v in operation.inputs:
                self.readers[v] |= 1 << p
        self.producer = [-1] * len(problem.values)
        for v, p in problem.producers().items():
            self.producer[v] = p
        self.forward = (1 << problem.forward_count) - 1
        again = [o.rerunnable and (self.forward == 0 or not o.backward) for o in operations]
        self.rerunnable = mask_of(p for p in range(self.count) if again[p])
        self.again_us = [t if a else NEVER for t, a in zip(self.time_us, again, strict=True)]
        self.ordered = mask_of(p for p, o in enumerate(operations) if o.ordered)
        self.given = mask_of(problem.given)
        self.step_held = self._held(Held.STEP)
        self.recompute = mask_of(recomputed(problem))
        self.forced = mask_of(forced(problem))
        self.chain: Chain | None = partition(problem) if problem.forward_count else None
        self._releases = _releases(problem, self)
        self.phase: Callable[[int], SearchPhase] = cache(self._phase)  # of the operations that ran

    @property
    def every_order(self) -> bool:
        """Tell whether all schedules are searched, not only those in the order of the blocks."""
        if self.chain is None:
            return True
        return len(self.chain.blocks) == 1 and not self._held(Held.SEGMENT)

    @property
    def total_us(self) -> float:
        return added(self.time_us)

    def bytes_of(self, values: int) -> int:
        return sum(self.nbytes[v] for v in members(values))

    def reruns(self, resident: int, phase: SearchPhase) -> tuple[int, float]:
        """Return the operations that must run again, and their time: the must-run closure.

        They are the producers of the values which are not there and which an operation yet to run,
        or one of the closure, reads.
        """
        missing = phase.needed & phase.made & ~resident
        again, time_us, there = 0, 0.0, resident
        while missing:
            p = self.producer[(missing & -missing).bit_length() - 1]
            if p < 0 or self.again_us[p] == NEVER:
                return again, NEVER
            again |= 1 << p
            time_us += self.time_us[p]
            there |= self.makes[p]
            missing = (missing | self.reads[p]) & ~there
        return again, time_us

    def earlier_segments(self, p: int) -> int:
        """Return the backward operations in the segments before the one of a backward operation."""
        earlier = 0
        for ready, _ in self._releases:
            if ready >> p & 1:
                break
            earlier = ready
        return earlier

    def held_at(self, p: int) -> int:
        """Return the values held by segments that have not ended when an operation runs first."""
        held = 0
        for ready, values in self._releases:
            held |= values if (ready | self.forward) >> p & 1 else 0
        return held

    def made_by(self, operations: int) -> int:
        return union(self.makes, operations)

    def _held(self, held: Held) -> int:
        return mask_of(v for v, value in enumerate(self.problem.values) if value.held is held)

    def _phase(self, done: int) -> SearchPhase:
        undone = self.all & ~done
        made, needed = self.made_by(done), union(self.reads, undone)
        rest_us = sum(self.time_us[p] for p in members(undone))  # exact, in any order
        pinned = self.step_held
        for ready, values in self._releases:
            if ready & undone:
                pinned |= values
        if undone & self.forward:
            pinned |= union(self.reads, undone & self.forward)
            allowed = undone & -undone
        else:
            made |= self.given
            allowed = self._allowed(done)
        return SearchPhase(made, needed, self._useful(needed, done), pinned, allowed, rest_us)

    def _useful(self, needed: int, done: int) -> int:
        """Return all values that a later run may read, re-runs of re-runs included."""
        useful = needed
        for p in reversed(members(done & self.rerunnable)):  # each reads what earlier ones make
            if self.makes[p] & useful:
                useful |= self.reads[p]
        return useful

    def _allowed(self, done: int) -> int:
        """Return what may run: the backward operations of the segment at hand, and all re-runs."""
        undone = self.all & ~done
        waiting = undone & self.ordered
        waiting &= waiting - 1  # all but the one that is next
        for ready, _ in self._releases:
            if ready & undone:
                return (undone & ready & ~waiting) | (done & self.rerunnable)
        return done & self.rerunnable


def _rounded(times_us: list[float]) -> list[float]:
    """Round times down to 40 binary digits of their sum, so that they add up exactly."""
    quantum = max(2.0 ** (math.frexp(added(times_us))[1] - 40), math.ulp(0.0))
    return [math.floor(t / quantum) * quantum for t in times_us]


def _releases(problem: Problem, graph: BitGraph) -> list[tuple[int, int]]:
    """Return for each backward segment its operations and all before, and what its end releases.

    A value held by a segment is released when the first backward segment ends after it was made,
    but not before its last reader's ends.
    """
    if graph.chain is None:
        return [(graph.all, 0)]
    segments = [block.backward for block in reversed(graph.chain.blocks)]
    place = {t: s for s, segment in enumerate(segments) for t in segment}
    last = {
        v: place.get(graph.producer[v], 0)
        for v, value in enumerate(problem.values)
        if value.held is Held.SEGMENT
    }
    for t, s in place.items():
        for v in problem.operations[t].inputs:
            if v in last:
                last[v] = max(last[v], s)
    releases, ready = [], 0
    for s, segment in enumerate(segments):
        ready |= mask_of(segment)
        releases.append((ready, mask_of(v for v in last if last[v] == s)))
    return releases
