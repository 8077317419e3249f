"""Move operations that fuse up to others that they share a value with, where the budget lets them.

GELU's gradient reads what its re-run reads; a product between the two keeps them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.law.liveness import to_schedule
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program, program_of
from remat_gen.solver.law.replay import IllegalScheduleError, replay
from remat_gen.solver.law.schedule import Schedule

_TRIES = 400  # each is a replay of the whole schedule


def gathered(
    problem: Problem, schedule: Schedule, fusible: Sequence[bool], budget_bytes: int
) -> Schedule:
    """Return the schedule with fusible operations beside each other, within the budget."""
    touched = [frozenset(o.inputs + o.outputs) for o in problem.operations]
    return _Gatherer(problem, fusible, budget_bytes, touched, program_of(schedule), schedule).run()


@dataclass(slots=True)
class _Gatherer:
    problem: Problem
    fusible: Sequence[bool]
    budget_bytes: int
    touched: list[frozenset[int]]  # values, by operation
    program: Program
    schedule: Schedule
    tries: int = _TRIES

    def run(self) -> Schedule:
        for segment in range(len(self.program.segments)):
            for position in range(len(self.program.segments[segment])):
                place = self._place(self.program.segments[segment], position)
                if place is not None and self.tries:
                    self._try(segment, position, place)
        return self.schedule

    def _place(self, runs: tuple[int, ...], position: int) -> int | None:
        """Return where a run can join the nearest others that it shares a value with."""
        p = runs[position]
        if not self.fusible[p] or position == 0 or self.fusible[runs[position - 1]]:
            return None
        for place in range(position - 1, 0, -1):
            if self._depends(p, runs[place]):
                return None
            if self.fusible[runs[place - 1]] and self._shares(p, runs, place):
                return place
        return None

    def _depends(self, p: int, other: int) -> bool:
        """Tell whether the order of two operations matters, or both make one value."""
        made, theirs = (self.problem.operations[q].outputs for q in (p, other))
        return not (self.touched[p].isdisjoint(theirs) and self.touched[other].isdisjoint(made))

    def _shares(self, p: int, runs: tuple[int, ...], place: int) -> bool:
        while place > 0 and self.fusible[runs[place - 1]]:
            if self.touched[p] & self.touched[runs[place - 1]]:
                return True
            place -= 1
        return False

    def _try(self, segment: int, position: int, place: int) -> None:
        self.tries -= 1
        runs = list(self.program.segments[segment])
        runs.insert(place, runs.pop(position))
        segments = list(self.program.segments)
        segments[segment] = tuple(runs)
        program = Program(tuple(segments))
        schedule = to_schedule(self.problem, program)
        try:
            fits = replay(self.problem, schedule).peak_bytes <= self.budget_bytes
        except IllegalScheduleError:
            return
        if fits:
            self.program, self.schedule = program, schedule
