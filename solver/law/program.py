"""A schedule without its frees: a value goes right after its last use before it is made again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from remat_gen.solver.law.schedule import Run, Schedule


@dataclass(frozen=True, slots=True)
class Program:
    """Operations run in forward segments 0 … n-1, then in backward segments n-1 … 0."""

    segments: tuple[tuple[int, ...], ...]

    @property
    def block_count(self) -> int:
        return len(self.segments) // 2

    def flat(self) -> list[int]:
        return list(chain.from_iterable(self.segments))

    def starts(self) -> list[int]:
        """Return the position of each segment's first run, and the number of runs at the end."""
        starts = [0]
        for segment in self.segments:
            starts.append(starts[-1] + len(segment))
        return starts

    def replaced(self, others: Mapping[int, Sequence[int]]) -> Program:
        """Return the same segments with other runs, or none, at some positions."""
        runs = self.flat()
        there = [others.get(i, runs[i : i + 1]) for i in range(len(runs))]
        pieces = (there[a:b] for a, b in pairwise(self.starts()))
        return Program(tuple(tuple(chain.from_iterable(piece)) for piece in pieces))


def first_runs(runs: list[int]) -> list[bool]:
    """Return for each position whether the operation runs there for the first time."""
    seen: set[int] = set()
    firsts = []
    for p in runs:
        firsts.append(p not in seen)
        seen.add(p)
    return firsts


def program_of(schedule: Schedule) -> Program:
    """Return what a schedule runs."""
    return Program(
        tuple(tuple(s.operation for s in g.steps if isinstance(s, Run)) for g in schedule.segments)
    )
