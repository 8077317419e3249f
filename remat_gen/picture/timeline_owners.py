"""Who holds the memory at each moment of a schedule: the replay's bytes, told apart.

A *stay* is the time that one run's result is in memory, or a fetched one. What it is follows from
who made it and how long it stays: *retained* (made in forward, there when backward begins; told
apart by module), *run again*, *fetched* from the host, a *gradient* (made in backward, or coming
in), or *transient* (the rest, and what an operation needs only while it runs). The sums are those
of `solver/law/replay.py`, whose machine is watched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import program_of
from remat_gen.solver.law.replay import Machine, freed_next
from remat_gen.solver.law.schedule import Schedule, Segment


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
    """Follow a schedule as the replay does, and note who comes and goes.

    Raises:
        IllegalScheduleError: it cannot run as it stands.
    """
    watch = _Watch(problem, schedule)
    watch.run()
    for v in sorted(watch.resident):
        watch._drop(v)
    backward_at = program_of(schedule).starts()[schedule.block_count]
    stays = sorted(watch.stays, key=lambda stay: (stay.begin, stay.value))
    return Residence(problem, tuple(watch.runs), tuple(stays), backward_at)


@dataclass(slots=True)
class _Watch(Machine):
    """A replay of which every run and every stay is noted."""

    runs: list[RunMoment] = field(default_factory=list)
    stays: list[Stay] = field(default_factory=list)
    begun: dict[int, Stay] = field(default_factory=dict)
    maker: tuple[int, bool] | None = None  # the operation that runs, and whether it does again
    over: int | None = None  # the input that the last run writes over

    def _run(self, index: int, position: int, p: int, segment: Segment) -> None:
        operation, again = self.problem.operations[p], p in self.ran
        twice = (v for v in operation.outputs if v in self.resident)
        own = operation.workspace_bytes + sum(self.problem.values[v].nbytes for v in twice)
        self.over = operation.over if operation.over in freed_next(segment, position) else None
        self.maker = p, again
        Machine._run(self, index, position, p, segment)
        self.maker = None
        begin_us = self.time_us - operation.time_us
        self.runs.append(RunMoment(p, begin_us, self.time_us, again, own))

    def _add(self, values: tuple[int, ...]) -> None:
        for v in values:
            if v not in self.resident:
                same = (stay for stay in self.stays if stay.value == v)
                sent = None if self.maker else next(same, None)  # none of what comes in
                producer, again = self.maker or (sent.producer if sent else None, False)
                self.begun[v] = Stay(v, producer, len(self.runs), -1, again, sent is not None)
        Machine._add(self, values)

    def _drop(self, v: int) -> None:
        """End a stay: of what is written over, where that of the result begins."""
        end = len(self.runs) - (v == self.over)
        self.stays.append(replace(self.begun.pop(v), end=end))
        Machine._drop(self, v)


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
