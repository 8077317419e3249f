"""Who holds the memory at each moment of a schedule: the replay's bytes, told apart.

A *stay* is the time that one run's result is in memory, or a fetched one. What it is follows from
who made it and how long it stays: *retained* (made in forward, there when backward begins; told
apart by module), *run again*, *fetched* from the host, a *gradient* (made in backward, or coming
in), or *transient* (the rest, and what an operation needs only while it runs). The sums are those
of `solver/law/replay.py`: a test holds them to it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from remat_gen.solver.law.hand_overs import hand_overs, waiting_gradients
from remat_gen.solver.law.host_copies import Copies
from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.replay import freed_next, last_use_of_held
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Send


class Part(Enum):
    """Why bytes are in memory."""

    RETAINED = "retained"
    RERUN = "run again"
    FETCHED = "fetched from the host"
    GRADIENT = "gradients"
    TRANSIENT = "transient"


@dataclass(frozen=True, slots=True)
class Stay:
    """A value in memory during the runs `begin` … `end` - 1, by their positions.

    `again` where a re-run made it, `fetched` where it came back from the host. A given value (an
    incoming gradient) has no `producer`.
    """

    value: int
    producer: int | None
    begin: int
    end: int
    again: bool
    fetched: bool = False


@dataclass(frozen=True, slots=True)
class RunMoment:
    """One run of an operation: when, and whether it is a re-run.

    `own_bytes` are there only while it runs: its workspace, and results that it makes a second time
    while the first are still there.
    """

    operation: int
    begin_us: float
    end_us: float
    again: bool
    own_bytes: int


@dataclass(frozen=True, slots=True)
class Residence:
    """All runs and stays of a schedule; backward begins with the run at `backward_at`."""

    problem: Problem
    runs: tuple[RunMoment, ...]
    stays: tuple[Stay, ...]
    backward_at: int

    @property
    def time_us(self) -> float:
        """Return the time of all runs."""
        return self.runs[-1].end_us if self.runs else 0.0

    @property
    def backward_us(self) -> float:
        """Return when backward begins."""
        at = self.backward_at
        return self.runs[at].begin_us if at < len(self.runs) else self.time_us

    def part(self, stay: Stay) -> Part:
        """Return why a stay is there."""
        if stay.producer is None or self.problem.operations[stay.producer].backward:
            return Part.GRADIENT
        if stay.again or stay.fetched:
            return Part.RERUN if stay.again else Part.FETCHED
        return Part.RETAINED if stay.end > self.backward_at else Part.TRANSIENT

    def of(self, value: int) -> list[Stay]:
        """Return the stays of a value, in order."""
        return [stay for stay in self.stays if stay.value == value]


def residence_of(problem: Problem, schedule: Schedule) -> Residence:
    """Follow a legal schedule; nothing is checked (the replay has done that)."""
    return _Walk(problem, schedule).walk()


@dataclass(slots=True)
class _Walk:
    problem: Problem
    schedule: Schedule
    runs: list[RunMoment] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    open: dict[int, Stay] = field(default_factory=dict)
    ran: set[int] = field(default_factory=set)
    time_us: float = 0.0
    backward_at: int = 0
    copies: Copies = field(init=False)

    def __post_init__(self) -> None:
        self.copies = Copies(self.problem.link)

    def walk(self) -> Residence:
        last_use = last_use_of_held(self.problem, self.schedule)
        waits = waiting_gradients(self.problem, self.schedule)
        for index, segment in enumerate(self.schedule.segments):
            if index == self.schedule.block_count:
                self.backward_at = len(self.runs)
                for v in self.problem.given:
                    self._begin(v, None, again=False)
            waiting = {v for v, until in waits.items() if until > index}
            leaving = hand_overs(self.problem, segment.steps, waiting) if segment.backward else {}
            for position, step in enumerate(segment.steps):
                for v in leaving.get(position, frozenset()) & self.open.keys():
                    self._free(v)
                match step:
                    case Run(p):
                        self._write_over(p, freed_next(segment, position))
                        self._run(p)
                    case Free(v):
                        self.time_us = self.copies.free(v, self.time_us)
                        if v in self.open:
                            self._free(v)
                    case Send(v):
                        self.copies.send(v, self.problem.values[v].nbytes, self.time_us)
                    case Fetch(v):
                        self.copies.fetch(v, self.problem.values[v].nbytes, self.time_us)
                        first = next(stay for stay in self.stays if stay.value == v)
                        self.open[v] = Stay(v, first.producer, len(self.runs), -1, False, True)
            if segment.backward:
                self._release(index, last_use, waiting)
        for v in list(self.open):
            self._free(v)
        ordered = sorted(self.stays, key=lambda stay: (stay.begin, stay.value))
        return Residence(self.problem, tuple(self.runs), tuple(ordered), self.backward_at)

    def _run(self, p: int) -> None:
        operation = self.problem.operations[p]
        for v in operation.inputs:
            self.time_us = self.copies.read(v, self.time_us)
        again = p in self.ran
        twice = [v for v in operation.outputs if v in self.open]
        own = operation.workspace_bytes + sum(self.problem.values[v].nbytes for v in twice)
        for v in operation.outputs:
            if v not in self.open:
                self._begin(v, p, again=again)
        end_us = self.time_us + operation.time_us
        self.runs.append(RunMoment(p, self.time_us, end_us, again, own))
        self.time_us = end_us
        self.ran.add(p)

    def _write_over(self, p: int, freed: Collection[int]) -> None:
        """End the stay of an input where the stay of the result begins."""
        over = self.problem.operations[p].over
        if over is not None and over in freed:
            self._free(over)

    def _begin(self, v: int, producer: int | None, *, again: bool) -> None:
        self.open[v] = Stay(v, producer, len(self.runs), -1, again)

    def _free(self, v: int) -> None:
        stay = self.open.pop(v)
        self.stays.append(replace(stay, end=len(self.runs)))

    def _release(self, index: int, last_use: dict[int, int], waiting: set[int]) -> None:
        there = self.open.keys() - waiting
        held = [v for v in there if self.problem.values[v].held is Held.SEGMENT]
        for v in held:
            if last_use.get(v, -1) <= index:
                self._free(v)


def bytes_by_run(residence: Residence, stays: Sequence[Stay]) -> list[int]:
    """Return the bytes that some stays take during each run."""
    change = [0] * (len(residence.runs) + 1)
    for stay in stays:
        nbytes = residence.problem.values[stay.value].nbytes
        change[stay.begin] += nbytes
        change[stay.end] -= nbytes
    total, sums = 0, []
    for more in change[:-1]:
        total += more
        sums.append(total)
    return sums
