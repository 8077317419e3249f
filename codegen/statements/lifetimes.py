"""From when to when a value lives in a schedule, and so where the emitted code keeps it.

A value that lives within one function is a local variable. One that crosses is kept on the step's
object, by the block that the value belongs to.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from remat_gen.codegen.statements.kept_outputs import LeavingBlocks
from remat_gen.solver.law.hand_overs import hand_overs, waiting_gradients
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Send, Step


@dataclass(slots=True)
class Lifetime:
    """One stay of a value in memory: from moment to moment, and from segment to segment."""

    value: int
    owner: int  # the block whose keeping it is in, if it crosses
    begin: int
    end: int
    begin_segment: int
    end_segment: int

    @property
    def crosses(self) -> bool:
        """Tell whether it outlives the function that made it."""
        return self.begin_segment != self.end_segment


@dataclass(slots=True)
class Lifetimes:
    """All lifetimes of a schedule. Moments number the steps through all segments."""

    problem: Problem
    schedule: Schedule
    leaving: LeavingBlocks
    by_value: dict[int, list[Lifetime]] = field(default_factory=dict)
    run_counts: dict[int, int] = field(default_factory=dict)
    waits: dict[int, int] = field(init=False)  # gradients, for their parameters' last segments
    _open: dict[int, Lifetime] = field(default_factory=dict)
    _home: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.waits = waiting_gradients(self.problem, self.schedule)
        moment = 0
        for moment, segment, step in moments(self.schedule):
            if segment >= self.schedule.block_count:
                self._give(moment, segment)
            match step:
                case Run(p):
                    self._run(moment, segment, p)
                case Free(v):
                    self._touch(v, moment, segment)
                    self._open.pop(v)
                case Send(v):
                    self._touch(v, moment, segment)
                case Fetch(v):
                    self._begin(v, moment, segment, self.by_value[v][0].owner)
        for v, lifetime in self._open.items():
            leaves = self.leaving.at(v)
            if self.problem.values[v].held is Held.STEP and lifetime.end_segment < leaves:
                lifetime.end_segment, lifetime.end = leaves, moment

    def at(self, value: int, moment: int) -> Lifetime:
        """Return the lifetime of a value that is running, or was last, at a moment."""
        return next(life for life in reversed(self.by_value[value]) if life.begin <= moment)

    def _give(self, moment: int, segment: int) -> None:
        block = self.schedule.segments[segment].block
        for v in self.problem.given:
            if v not in self.by_value and self.leaving.at(v) == block:
                self._begin(v, moment, segment, block)

    def _run(self, moment: int, segment: int, p: int) -> None:
        operation = self.problem.operations[p]
        home = self._home.setdefault(p, self.schedule.segments[segment].block)
        self.run_counts[p] = self.run_counts.get(p, 0) + 1
        waiting = (v for v in operation.keeps if v in self.waits and v in self._open)
        for v in (*operation.inputs, *waiting):
            self._touch(v, moment, segment)
        for v in operation.outputs:
            if v not in self._open:
                self._begin(v, moment, segment, home)

    def _begin(self, v: int, moment: int, segment: int, owner: int) -> None:
        lifetime = Lifetime(v, owner, moment, moment, segment, segment)
        self._open[v] = lifetime
        self.by_value.setdefault(v, []).append(lifetime)

    def _touch(self, v: int, moment: int, segment: int) -> None:
        self._open[v].end, self._open[v].end_segment = moment, segment


def moments(schedule: Schedule) -> Iterator[tuple[int, int, Step | None]]:
    """Yield (moment, segment, step); a segment without steps has one moment with None."""
    moment = 0
    for index, segment in enumerate(schedule.segments):
        for step in segment.steps or (None,):
            yield moment, index, step
            moment += 1


def hand_over_moments(problem: Problem, schedule: Schedule) -> dict[int, frozenset[int]]:
    """Return the gradients that leave in the middle of a backward segment, by the moment behind."""
    starts: dict[int, int] = {}
    waits = waiting_gradients(problem, schedule)
    for moment, segment, _ in moments(schedule):
        starts.setdefault(segment, moment)
    return {
        starts[index] + i: gradients
        for index, segment in enumerate(schedule.segments)
        if segment.backward
        for i, gradients in hand_overs(problem, segment.steps, waits).items()
    }
