"""Where in a schedule values are sent, freed and fetched, so that little waits, within the budget.

Between what is resident at least and the budget is room for values on their way. A value is sent
once it is made, and freed where its copy has ended, or earlier where the room is needed. Seen from
the end of the step, fetching is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Operation, Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import replay
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Send, Step, schedule_of

LEAD = 1.25  # how much longer than modelled a copy may take before anything waits


def fetch_of(problem: Problem, v: int) -> int:
    """Return the run that stands for the fetch of a value in a program."""
    return len(problem.operations) + v


def with_copies(problem: Problem, program: Program, budget_bytes: int) -> Schedule:
    """Return the schedule of a program with fetches; it waits where the budget leaves no room."""
    lines = _Lines.of(problem, program)
    least = replay(problem, lines.schedule())
    kept = max(moment.nbytes for moment in least.timeline) - least.peak_bytes
    room = [budget_bytes + kept - moment.nbytes for moment in least.timeline]
    times = [problem.operations[p].time_us for p in lines.runs]
    turn = lines.turn
    out = _let_go(problem, lines.copies_out(), times[:turn], room[:turn])
    for copy, last in out:
        lines.freed[copy.read].remove(copy.value)
        lines.freed[last].append(copy.value)
    back = _let_go(problem, lines.copies_back(problem), times[turn:][::-1], room[turn:][::-1])
    for copy, first in back:
        lines.fetched[-1 - copy.read].remove(copy.value)
        lines.fetched[-1 - first].append(copy.value)
    return lines.schedule()


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy that is queued behind run `start`; the value's memory may go behind run `read`.

    It must go behind run `stop`. Runs are forward's, or backward's from its end.
    """

    value: int
    start: int
    read: int
    stop: int


def _let_go(
    problem: Problem, copies: Sequence[_Copy], times_us: Sequence[float], room: Sequence[int]
) -> list[tuple[_Copy, int]]:
    """Return behind which run each value's memory goes, in the order of the queue.

    `room` are the bytes that each run leaves free beside values that are there anyway.
    """
    assert problem.link is not None
    queued: dict[int, list[_Copy]] = {}
    for copy in copies:
        queued.setdefault(copy.start, []).append(copy)
    now = engine = 0.0
    going: list[tuple[_Copy, float]] = []
    gone: list[tuple[_Copy, int]] = []
    for i, time_us in enumerate(times_us):
        held = [(c, until) for c, until in going if c.read < i]
        excess = sum(problem.values[c.value].nbytes for c, _ in held) - room[i]
        for copy, until in held:
            if until > now and excess <= 0 and i <= copy.stop:
                continue
            now = max(now, until)
            excess -= problem.values[copy.value].nbytes
            going.remove((copy, until))
            gone.append((copy, i - 1))
        now += time_us
        for copy in queued.get(i, ()):
            nbytes = problem.values[copy.value].nbytes
            engine = max(now, engine) + LEAD * problem.link.copy_us(nbytes)
            going.append((copy, engine))
    return gone + [(copy, len(times_us) - 1) for copy, _ in going]


@dataclass(slots=True)
class _Lines:
    """A schedule, run by run: the values that are fetched before each, freed and sent behind it.

    `ends` are the numbers of runs up to the end of each segment; `unread` is freed before all of
    backward.
    """

    runs: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    fetched: list[list[int]] = field(default_factory=list)
    freed: list[list[int]] = field(default_factory=list)
    sent: list[list[int]] = field(default_factory=list)
    unread: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, problem: Problem, program: Program) -> _Lines:
        """Return the lines that free all as soon as they may, and fetch right before readers."""
        lines, count = cls(), len(problem.operations)
        schedule = to_schedule(with_fetches(problem), _late(problem, program))
        waiting: list[int] = []
        for index, segment in enumerate(schedule.segments):
            for step in segment.steps:
                if isinstance(step, Free):
                    begun = len(lines.runs) > (lines.ends[-1] if lines.ends else 0)
                    first = index == schedule.block_count and not begun
                    (lines.unread if first else lines.freed[-1]).append(step.value)
                elif isinstance(step, Run) and step.operation >= count:
                    waiting.append(step.operation - count)
                elif isinstance(step, Run):
                    lines.runs.append(step.operation)
                    lines.fetched.append(waiting)
                    lines.freed.append([])
                    lines.sent.append([])
                    waiting = []
            lines.ends.append(len(lines.runs))
        lines._send(problem)
        return lines

    @property
    def turn(self) -> int:
        return self.ends[len(self.ends) // 2 - 1]

    def _send(self, problem: Problem) -> None:
        """Send what is fetched as soon as it is made."""
        producers = problem.producers()
        place = {p: i for i, p in reversed(list(enumerate(self.runs)))}
        for v in dict.fromkeys(v for values in self.fetched for v in values):
            self.sent[place[producers[v]]].append(v)

    def copies_out(self) -> list[_Copy]:
        """Return the copies to the host, with forward's runs in order."""
        free = {v: i for i, values in enumerate(self.freed[: self.turn]) for v in values}
        sent = ((v, i) for i, values in enumerate(self.sent) for v in values if v in free)
        return [_Copy(v, i, free[v], self.turn) for v, i in sent]

    def copies_back(self, problem: Problem) -> list[_Copy]:
        """Return the copies from the host, with backward's runs from the last to the first.

        A fetch stays behind what freed the value last, or made it in vain.
        """
        count = len(self.runs) - self.turn
        barred: dict[int, list[int]] = {}
        for i in range(count):
            for v in (*self.freed[-1 - i], *problem.operations[self.runs[-1 - i]].outputs):
                barred.setdefault(v, []).append(i)
        return [
            _Copy(v, i, i, min((at - 1 for at in barred.get(v, ()) if at > i), default=count))
            for i in range(count)
            for v in self.fetched[-1 - i]
        ]

    def schedule(self) -> Schedule:
        segments = []
        for index, (start, end) in enumerate(pairwise((0, *self.ends))):
            turns = index == len(self.ends) // 2
            steps: list[Step] = [Free(v) for v in self.unread] if turns else []
            for i in range(start, end):
                steps += [Fetch(v) for v in self.fetched[i]]
                steps.append(Run(self.runs[i]))
                own = set(self.sent[i])  # some are freed at once, where they wait for the copy
                steps += [Free(v) for v in self.freed[i] if v not in own]
                steps += [Send(v) for v in self.sent[i]]
                steps += [Free(v) for v in self.freed[i] if v in own]
            segments.append(steps)
        return schedule_of(segments)


def with_fetches(problem: Problem) -> Problem:
    """Return the problem with the fetch of each value as an operation that reads nothing."""
    fetches = tuple(
        Operation(value.name, 0.0, 0, (), (v,), backward=False)
        for v, value in enumerate(problem.values)
    )
    return replace(problem, operations=problem.operations + fetches)


def _late(problem: Problem, program: Program) -> Program:
    """Return the program with each fetch right before the first run that reads its value."""
    count = len(problem.operations)
    segments: list[tuple[int, ...]] = []
    waiting: list[int] = []
    for segment in program.segments:
        runs: list[int] = []
        for p in segment:
            if p >= count:
                waiting.append(p)
                continue
            wanted = [f for f in waiting if f - count in problem.operations[p].inputs]
            waiting = [f for f in waiting if f not in wanted]
            runs += [*dict.fromkeys(wanted), p]
        segments.append(tuple(runs))
    return Program(tuple(segments))
