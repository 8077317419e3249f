"""A step with two copy engines, tick by tick: slow, and plain to see that it is right.

Times are whole numbers. Three workers: one computes, in the order of the schedule, one copies out,
one copies in. In each tick a worker is busy or waits for what its next task needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from remat_gen.solver.law.problem import Held, Problem
from remat_gen.solver.law.schedule import Fetch, Free, Run, Schedule, Send, Step


@dataclass
class Engine:
    """Copies values one after another; `waits_for` must be done before a copy begins."""

    queue: list[int] = field(default_factory=list)
    done: set[int] = field(default_factory=set)
    left: int = 0

    def tick(self, copy_ticks: list[int], may_begin: set[int] | None) -> None:
        """Work for one tick."""
        if not self.queue:
            return
        v = self.queue[0]
        if self.left == 0 and (may_begin is None or v in may_begin):
            self.left = copy_ticks[v]
        if self.left:
            self.left -= 1
            if self.left == 0:
                self.done.add(self.queue.pop(0))


@dataclass
class Simulated:
    """What happened: when it ended, and the most bytes at any moment, held ones left out."""

    ticks: int
    peak: int


def simulate(problem: Problem, schedule: Schedule) -> Simulated:
    """Run a schedule of a problem without values held by segments; copies take a tick or more."""
    assert problem.link is not None
    copy_ticks = [int(problem.link.copy_us(value.nbytes)) for value in problem.values]
    todo: list[Step | None] = []
    for number, segment in enumerate(schedule.segments):
        todo += [None] if number == schedule.block_count else []  # gradients come in
        todo += segment.steps
    out, back = Engine(), Engine()
    there: set[int] = set()
    coming: set[int] = set()
    sending: set[int] = set()
    peak = ticks = busy = 0

    def bytes_there() -> int:
        return sum(problem.values[v].nbytes for v in there)

    def stuck(step: Step | None) -> bool:
        if isinstance(step, Run):
            return any(v in coming - back.done for v in problem.operations[step.operation].inputs)
        if isinstance(step, Free):
            return step.value in (sending - out.done) | (coming - back.done)
        return False

    while todo or busy:
        while not busy and todo and not stuck(todo[0]):  # what takes no time
            step = todo.pop(0)
            if step is None:
                there |= set(problem.given)
            elif isinstance(step, Send):
                out.queue.append(step.value)
                sending.add(step.value)
            elif isinstance(step, Fetch):
                back.queue.append(step.value)
                coming.add(step.value)
                there.add(step.value)
            elif isinstance(step, Free):
                there.remove(step.value)
            else:
                operation = problem.operations[step.operation]
                busy = int(operation.time_us)
                made = sum(problem.values[v].nbytes for v in operation.outputs)
                room = made + operation.workspace_bytes
                peak = max(peak, bytes_there() + room)
                there |= set(operation.outputs)
        peak = max(peak, bytes_there()) if todo else peak
        if not (todo or busy):
            break
        ended = set(out.done)  # a copy that ends in this tick is there for the next one
        out.tick(copy_ticks, None)
        back.tick(copy_ticks, ended)
        busy -= busy > 0
        ticks += 1
    held = {v for v in there if problem.values[v].held is not Held.STEP}
    assert not held and not back.queue
    return Simulated(ticks, peak)
