"""What runs cost by the replay, and the best of them within a budget: what searches offer to."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import in_segments
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.pins import honoured, honoured_runs
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import IllegalScheduleError, Replay, replay
from remat_gen.solver.law.search_types import Effort, Found, Incumbent
from remat_gen.solver.law.sums import added


@dataclass(frozen=True, slots=True)
class Judged:
    """Runs without idle re-runs, and what the replay says of them."""

    runs: tuple[int, ...]
    replay: Replay

    @property
    def time_us(self) -> float:
        return self.replay.time_us


def judge(problem: Problem, chain: Chain | None, runs: Sequence[int]) -> Judged | None:
    """Return what runs cost, None where they cannot run; without a chain, in one segment."""
    program = prune(problem, honoured(problem, in_segments(problem, chain, runs)))
    try:
        judged = replay(problem, to_schedule(problem, program))
    except IllegalScheduleError:
        return None
    return Judged(tuple(program.flat()), judged)


@dataclass(slots=True)
class IncumbentSchedule:
    """The best schedule within a budget, of all that searches of one problem offer.

    `on_better` hears of each one.
    """

    problem: Problem
    chain: Chain | None
    budget_bytes: int
    on_better: Incumbent | None = None
    best: Judged | None = None

    @property
    def time_us(self) -> float:
        """Return its time, infinity where there is none."""
        return math.inf if self.best is None else self.best.time_us

    def offer(self, runs: Sequence[int]) -> Judged | None:
        """Judge runs, and take them if they are within the budget and quicker."""
        judged = judge(self.problem, self.chain, runs)
        if judged is not None and self.fits(judged) and judged.time_us < self.time_us:
            self.best = judged
            if self.on_better is not None:
                self.on_better(judged.runs, judged.time_us)
        return judged

    def fits(self, judged: Judged) -> bool:
        return judged.replay.peak_bytes <= self.budget_bytes

    def offer_all(self, candidates: Iterable[Sequence[int]]) -> None:
        """Judge candidates from the least time on, up to the first that fits.

        Those after it take longer, unless pruning shortens them: they are not replayed.
        """
        times = [operation.time_us for operation in self.problem.operations]
        found = dict.fromkeys(honoured_runs(self.problem, runs) for runs in candidates)
        by_time = {runs: added(times[p] for p in runs) for runs in found}
        for runs in sorted(by_time, key=lambda runs: (by_time[runs], len(runs), runs)):
            judged = self.offer(runs)
            assert judged is not None, "proposed runs cannot run"
            if self.fits(judged):
                return

    def found(self) -> Found:
        """Return the best; running each operation once bounds all schedules."""
        once_us = added(operation.time_us for operation in self.problem.operations)
        return Found(self.best.runs if self.best else None, once_us)


SearchFunction: TypeAlias = Callable[[IncumbentSchedule, Effort], Found]
"""A search of a whole graph, where running each operation once does not fit; it offers as it goes.
"""


def incumbent_of(
    problem: Problem, budget_bytes: int, on_better: Incumbent | None = None
) -> IncumbentSchedule:
    """Return an incumbent without a schedule; runs of a training problem are judged in blocks."""
    chain = partition(problem) if problem.forward_count else None
    return IncumbentSchedule(problem, chain, budget_bytes, on_better)
