"""Peak and time of a program, quickly: the same figures as `replay` of its schedule.

A search measures hundreds of programs; the replay of the chosen one stays the judge. Each stay of a
value in memory is an interval of positions in the list of runs; a running sum of what enters and
leaves gives the bytes inside each run.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from remat_gen.solver.problem import Held, Problem
from remat_gen.solver.program import Program


@dataclass(frozen=True, slots=True)
class Measure:
    """Bytes inside each run, their maximum, and the summed time."""

    peak_bytes: int
    time_us: float
    inside: npt.NDArray[np.int64]


def measure(problem: Problem, program: Program) -> Measure:
    """Measure a legal program; nothing is checked."""
    runs = program.flat()
    if not runs:
        return Measure(0, 0.0, np.zeros(0, dtype=np.int64))
    stays = _Stays(problem, program, runs)
    inside = stays.sum()
    time_us = sum([problem.operations[p].time_us for p in runs])
    return Measure(int(inside.max()), time_us, inside)


class _Stays:
    """Intervals of positions at which each value is in memory."""

    def __init__(self, problem: Problem, program: Program, runs: list[int]) -> None:
        self.problem = problem
        self.starts = program.starts()
        self.runs = runs
        self.first_backward = program.block_count
        self.delta = np.zeros(len(runs) + 2, dtype=np.int64)
        self.extra = np.zeros(len(runs) + 2, dtype=np.int64)
        self.held = [value.held is not Held.FREE for value in problem.values]
        self.nbytes = [value.nbytes for value in problem.values]

    def sum(self) -> npt.NDArray[np.int64]:
        begin, last = self._walk_free()
        for v, start in begin.items():
            self._stay(v, start, last[v])
        self._walk_held()
        total = np.cumsum(self.delta)[: len(self.runs)]
        workspace = [self.problem.operations[p].workspace_bytes for p in self.runs]
        inside: npt.NDArray[np.int64] = total + self.extra[: len(self.runs)]
        return inside + np.array(workspace, dtype=np.int64)

    def _stay(self, v: int, start: int, end: int) -> None:
        self.delta[start] += self.nbytes[v]
        self.delta[end + 1] -= self.nbytes[v]

    def _walk_free(self) -> tuple[dict[int, int], dict[int, int]]:
        """Record the stays that end by being made again; return begin and end of the last ones."""
        operations, held = self.problem.operations, self.held
        read = {v for operation in operations for v in operation.inputs}
        appear = self.starts[self.first_backward]
        begin = {v: appear for v in self.problem.given if not held[v] and v in read}
        last = dict(begin)
        for position, p in enumerate(self.runs):
            operation = operations[p]
            for v in operation.inputs:
                last[v] = position
            for v in operation.outputs:
                if not held[v]:
                    if v in begin:
                        self._stay(v, begin[v], last[v])
                    begin[v] = last[v] = position
        return begin, last

    def _walk_held(self) -> None:
        made, last_use = self._held_events()
        for v, segments in made.items():
            released = -1
            for segment, position in segments:
                if position <= released:
                    self.extra[position] += self.nbytes[v]
                    continue
                released = self._release(v, segment, last_use.get(v, -1))
                self._stay(v, position, released)

    def _held_events(self) -> tuple[dict[int, list[tuple[int, int]]], dict[int, int]]:
        """Return where each held value is made (segment, position) and the last segment reading."""
        appear = (self.first_backward, self.starts[self.first_backward])
        made = {v: [appear] for v in self.problem.given if self.held[v]}
        last_use: dict[int, int] = {}
        for segment, start in enumerate(self.starts[:-1]):
            for position in range(start, self.starts[segment + 1]):
                operation = self.problem.operations[self.runs[position]]
                for v in operation.inputs:
                    if self.held[v]:
                        last_use[v] = segment
                for v in operation.outputs:
                    if self.held[v]:
                        made.setdefault(v, []).append((segment, position))
        return made, last_use

    def _release(self, v: int, segment: int, last_use: int) -> int:
        """Return the last position at which a held value made in `segment` is there."""
        if self.problem.values[v].held is Held.STEP:
            return len(self.runs) - 1
        return self.starts[max(segment, last_use, self.first_backward) + 1] - 1
