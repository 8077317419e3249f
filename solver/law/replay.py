"""Replay a schedule: its exact peak and time. The judge of every strategy.

The memory model is that of the emitted code on the device's allocator:
- while an operation runs, all that is resident, its outputs and its workspace are allocated; an
  input that is written over, and freed before anything else runs, is not there beside the output;
- a re-run of an operation makes *all* its outputs; those still resident are made a second time and
  dropped when it returns;
- `Free` takes effect at once; only FREE-held values can be freed, and none twice;
- SEGMENT-held values need no `Free`: each is released when a backward segment ends, the first that
  ends after it was made (a given one: the first of all) and after its last use; those that leave,
  behind the next `hand_overs`, or at the end of the segment that they wait for;
- STEP-held values are never freed;
- `ordered` operations run first in the order in which they stand;
- a value that travels is sent in forward and fetched in backward (see `host_copies`): the time is
  that of what runs, and of waiting for copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from remat_gen.solver.law.hand_overs import hand_overs, waiting_gradients
from remat_gen.solver.law.host_copies import Copies
from remat_gen.solver.law.problem import Held, Operation, Problem
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Segment, Send, schedule_of


class IllegalScheduleError(ValueError):
    """A schedule that uses a value that is not there, or breaks the order of the segments."""


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory while one step of the schedule runs: `nbytes` inside it, `resident` after it."""

    segment: int
    step: int
    operation: int
    nbytes: int
    resident: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a schedule costs: `peak_at` is the index of the operation that sets the peak.

    `travelled` are the values that go to the host, all of them there when backward begins;
    `waits_us`, a part of the time, is spent on copies that are not done. `retained_bytes` are
    resident where backward begins.
    """

    peak_bytes: int
    time_us: float
    peak_at: int
    reruns: tuple[int, ...]
    timeline: tuple[Moment, ...]
    travelled: tuple[int, ...] = ()
    waits_us: float = 0.0
    retained_bytes: int = 0


def replay(problem: Problem, schedule: Schedule, *, keep_gradients: bool = False) -> Replay:
    """Run a schedule on paper.

    `keep_gradients` models the step that starts without `.grad`: parameter gradients (SEGMENT-held
    values that no operation reads) then stay to the end, and are left out of the peak's baseline.

    Raises:
        IllegalScheduleError: the schedule cannot run as it stands.
    """
    _check_segments(problem, schedule)
    return Machine(problem, schedule, keep_gradients).run()


def _check_segments(problem: Problem, schedule: Schedule) -> None:
    if schedule_of([segment.steps for segment in schedule.segments]) != schedule:
        raise IllegalScheduleError("segments are not those of blocks 0…n-1 and back")
    firsts = dict.fromkeys(
        step.operation for s in schedule.segments for step in s.steps if isinstance(step, Run)
    )
    if len(firsts) != len(problem.operations):
        raise IllegalScheduleError("some operation never runs")


@dataclass(slots=True)
class Machine:
    """Runs a schedule step by step; every value comes by `_add` and goes by `_drop`."""

    problem: Problem
    schedule: Schedule
    keep_gradients: bool = False
    resident: set[int] = field(default_factory=set)
    nbytes: int = 0
    peak: int = 0
    peak_at: int = -1
    time_us: float = 0.0
    ran: set[int] = field(default_factory=set)
    ordered: int = -1
    reruns: list[int] = field(default_factory=list)
    timeline: list[Moment] = field(default_factory=list)
    copies: Copies = field(init=False)
    waits_us: float = 0.0
    retained: int = 0

    def __post_init__(self) -> None:
        self.copies = Copies(self.problem.link)

    def run(self) -> Replay:
        last_use = last_use_of_held(self.problem, self.schedule)
        waits = waiting_gradients(self.problem, self.schedule)
        for index, segment in enumerate(self.schedule.segments):
            if index == self.schedule.block_count:
                kept = sorted(v for v in self.resident if self.problem.values[v].recompute)
                self._refuse(kept, ": to be recomputed, but kept for backward")
                self.retained = self.nbytes
                self._add(self.problem.given)
            waiting = {v for v, until in waits.items() if until > index}
            leaving = hand_overs(self.problem, segment.steps, waiting) if segment.backward else {}
            for position, step in enumerate(segment.steps):
                self._hand_over(leaving.get(position, frozenset()))
                match step:
                    case Run(p):
                        self._run(index, position, p, segment)
                    case Free(v):
                        self._free(v)
                    case Send(v):
                        self._send(v, segment)
                    case Fetch(v):
                        self._fetch(v, segment)
            if segment.backward:
                self._release_held(index, last_use, waiting)
        return self._result()

    def _run(self, index: int, position: int, p: int, segment: Segment) -> None:
        operation = self.problem.operations[p]
        missing = [v for v in operation.inputs if v not in self.resident]
        self._refuse(missing, ", which is not there", f"{operation.name} needs ")
        if operation.backward and not segment.backward:
            raise IllegalScheduleError(f"{operation.name} belongs to backward")
        if p in self.ran and not operation.rerunnable:
            raise IllegalScheduleError(f"{operation.name} cannot run again")
        if p in self.ran:
            self.reruns.append(p)
        elif segment.backward and not operation.backward:
            raise IllegalScheduleError(f"{operation.name} runs for the first time in backward")
        elif operation.ordered:
            self._keep_order(p, operation)
        self.ran.add(p)
        for v in operation.inputs:
            self._wait(self.copies.read(v, self.time_us))
        self.time_us += operation.time_us
        inside = self.nbytes + sum(self.problem.values[v].nbytes for v in operation.outputs)
        over = operation.over is not None and operation.over in freed_next(segment, position)
        inside += self.problem.extra_bytes(operation) if over else operation.workspace_bytes
        if inside > self.peak:
            self.peak, self.peak_at = inside, p
        self._add(operation.outputs)
        self.timeline.append(Moment(index, position, p, inside, self.nbytes))

    def _refuse(self, values: Sequence[int], why: str, what: str = "") -> None:
        """Raise an error that names values, if there are any."""
        if values:
            names = ", ".join(self.problem.values[v].name for v in values)
            raise IllegalScheduleError(f"{what}{names}{why}")

    def _keep_order(self, p: int, operation: Operation) -> None:
        if p < self.ordered:
            after = self.problem.operations[self.ordered].name
            raise IllegalScheduleError(f"{operation.name} must run before {after}")
        self.ordered = p

    def _add(self, values: tuple[int, ...]) -> None:
        for v in values:
            if v not in self.resident:
                self.resident.add(v)
                self.nbytes += self.problem.values[v].nbytes

    def _free(self, v: int) -> None:
        value = self.problem.values[v]
        if value.held is not Held.FREE:
            raise IllegalScheduleError(f"{value.name} is held until the {value.held.value} ends")
        if v not in self.resident:
            raise IllegalScheduleError(f"{value.name} is freed but is not there")
        self._wait(self.copies.free(v, self.time_us))
        self._drop(v)

    def _wait(self, until: float) -> None:
        if until > self.time_us:
            self.waits_us += until - self.time_us
            self.time_us = until

    def _send(self, v: int, segment: Segment) -> None:
        value = self.problem.values[v]
        if self.problem.link is None or not value.travels or value.held is not Held.FREE:
            raise IllegalScheduleError(f"{value.name} does not travel")
        if segment.backward or v not in self.resident or v in self.copies.host:
            raise IllegalScheduleError(f"{value.name} is sent in backward, twice, or not there")
        self.copies.send(v, value.nbytes, self.time_us)

    def _fetch(self, v: int, segment: Segment) -> None:
        value = self.problem.values[v]
        if not segment.backward or v in self.resident or v not in self.copies.host:
            raise IllegalScheduleError(
                f"{value.name} is fetched in forward, where it still is, or without being sent"
            )
        self.copies.fetch(v, value.nbytes, self.time_us)
        self._add((v,))

    def _release_held(self, index: int, last_use: dict[int, int], waiting: set[int]) -> None:
        for v in sorted(self.resident - waiting):
            kept = self.keep_gradients and v not in last_use and v not in self.problem.given
            held = self.problem.values[v].held is Held.SEGMENT
            if held and last_use.get(v, -1) <= index and not kept:
                self._drop(v)

    def _hand_over(self, gradients: frozenset[int]) -> None:
        if not self.keep_gradients:
            for v in gradients & self.resident:
                self._drop(v)

    def _drop(self, v: int) -> None:
        self.resident.remove(v)
        self.nbytes -= self.problem.values[v].nbytes

    def _result(self) -> Replay:
        left = sorted(v for v in self.resident if self.problem.values[v].held is Held.FREE)
        self._refuse(left, " never freed")
        self._refuse(
            sorted(self.copies.host.keys() - self.copies.fetched), " sent and never fetched"
        )
        kept = sum(
            self.problem.values[v].nbytes
            for v in self.resident
            if self.problem.values[v].held is Held.SEGMENT
        )
        return Replay(
            self.peak - kept,
            self.time_us,
            self.peak_at,
            tuple(self.reruns),
            tuple(self.timeline),
            tuple(self.copies.host),
            self.waits_us,
            self.retained,
        )


def last_use_of_held(problem: Problem, schedule: Schedule) -> dict[int, int]:
    """Return for each SEGMENT-held value that an operation reads the last segment that does."""
    return {
        v: index
        for index, segment in enumerate(schedule.segments)
        for step in segment.steps
        if isinstance(step, Run)
        for v in problem.operations[step.operation].inputs
        if problem.values[v].held is Held.SEGMENT
    }


def freed_next(segment: Segment, position: int) -> list[int]:
    """Return the values that are freed behind a step before anything else runs."""
    behind = takewhile(lambda step: isinstance(step, Free), segment.steps[position + 1 :])
    return [step.value for step in behind if isinstance(step, Free)]
