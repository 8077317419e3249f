"""The judge of all published strategies: runs in, the replay's exact figures out.

A strategy only proposes runs. Here re-runs that nobody reads are dropped, values are freed as soon
as they are dead, and what exceeds the budget in the replay is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from remat_gen.solver.blocks.block_chain import Chain
from remat_gen.solver.blocks.partition import partition
from remat_gen.solver.blocks.simple_programs import in_segments
from remat_gen.solver.law.liveness import prune, to_schedule
from remat_gen.solver.law.pins import honoured, honoured_runs
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.search_types import Found, Incumbent
from remat_gen.solver.law.sums import added


@dataclass(frozen=True, slots=True)
class Verdict:
    """Runs without those that nobody reads, and their figures."""

    runs: tuple[int, ...]
    replay: Replay


@dataclass(slots=True)
class Judge:
    """Judge runs on one problem and budget, and keep the quickest that fit."""

    problem: Problem
    budget_bytes: int
    on_better: Incumbent | None = None
    best: Verdict | None = None
    chain: Chain | None = field(init=False)

    def __post_init__(self) -> None:
        """Cut a training problem into the segments that its runs are judged in."""
        self.chain = partition(self.problem) if self.problem.forward_count else None

    def judged(self, runs: Sequence[int]) -> Verdict:
        """Replay runs; those of a bare graph are one backward segment.

        Raises:
            IllegalScheduleError: the runs cannot run as they stand.
        """
        whole = Program(((), tuple(runs)))
        if self.chain is not None:
            whole = in_segments(self.problem, self.chain, runs)
        program = prune(self.problem, honoured(self.problem, whole))
        figures = replay(self.problem, to_schedule(self.problem, program))
        return Verdict(tuple(program.flat()), figures)

    def offer(self, runs: Sequence[int]) -> Verdict:
        """Judge runs, and keep them if they fit the budget and beat the best so far."""
        verdict = self.judged(runs)
        if verdict.replay.peak_bytes <= self.budget_bytes and self._beats_best(verdict):
            self.best = verdict
            if self.on_better:
                self.on_better(verdict.runs, verdict.replay.time_us)
        return verdict

    def offer_all(self, candidates: Iterable[Sequence[int]]) -> None:
        """Judge candidates from the least time on, up to the first that fits.

        Those after it take longer, unless pruning shortens them: they are not replayed.
        """
        found = dict.fromkeys(honoured_runs(self.problem, runs) for runs in candidates)
        by_time = {runs: self._time_us(runs) for runs in found}
        for runs in sorted(by_time, key=lambda runs: (by_time[runs], len(runs), runs)):
            verdict = self.offer(runs)
            if verdict.replay.peak_bytes <= self.budget_bytes:
                return

    def found(self) -> Found:
        """Return the best kept so far; running each operation once bounds all schedules."""
        once_us = added(operation.time_us for operation in self.problem.operations)
        return Found(self.best.runs if self.best else None, once_us)

    def _beats_best(self, verdict: Verdict) -> bool:
        return self.best is None or _rank(verdict) < _rank(self.best)

    def _time_us(self, runs: Iterable[int]) -> float:
        return added(self.problem.operations[p].time_us for p in runs)


def _rank(verdict: Verdict) -> tuple[float, int, tuple[int, ...]]:
    return (verdict.replay.time_us, verdict.replay.peak_bytes, verdict.runs)
