"""Programs improved up to fixed shares of the plain peak, each rung from the one below it.

A budget only chooses among programs that do not depend on it, so that more memory never costs time.
On large problems rungs come in groups, climbed from the bottom of each, and a budget looks at its
own group and the one below. What lies lower cannot be quicker: a rung takes no program that is
quicker than the known one that the rung of its place in the next group has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

from remat_gen.solver.improve.memory_measure import MeasuredProgram, started
from remat_gen.solver.improve.ruin_and_recreate import (
    ANYWHERE,
    STILL,
    Moving,
    Window,
    lowered,
    retain_more,
)
from remat_gen.solver.improve.run_timeline import ProblemArrays
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Progress, silent

SMALL = 150  # operations up to which all rungs below a budget are climbed
LARGE = 1000  # operations above which there are fewer trials
GROUPS = 25  # of rungs on larger problems


_LARGE = {Effort.QUICK: (100, 10), Effort.NORMAL: (400, 12), Effort.THOROUGH: (200, 400)}
_SMALL = {Effort.QUICK: (20, 10), Effort.NORMAL: (50, 24), Effort.THOROUGH: (100, 300)}


def work_for(operations: int, effort: Effort, *, bare: bool = False) -> tuple[int, int]:
    """Return how many rungs there are, shares of the plain peak, and how many trials of each.

    A trial's time grows with the operations, and is longer on bare graphs, since runs move.
    """
    if operations <= SMALL:
        return _SMALL[Effort.QUICK if bare and effort is Effort.NORMAL else effort]
    rungs, trials = _LARGE[effort]
    return rungs // 4 if bare else rungs, max(1, min(trials, trials * LARGE // operations))


@dataclass(slots=True)
class BudgetGrid:
    """`candidates` by rising peak and falling time; `plain` runs everything once.

    Without `rungs` none is improved.
    """

    arrays: ProblemArrays
    plain: MeasuredProgram
    candidates: list[MeasuredProgram]
    moving: Moving = STILL
    rungs: int = 0
    trials: int = 0
    _climbed: dict[int, MeasuredProgram | None] = field(default_factory=dict)

    def known(self, budget: int) -> MeasuredProgram | None:
        """Return the quickest program that fits without improving any."""
        fitting = (c for c in self.candidates if c.peak_bytes <= budget)
        return min(fitting, key=by_time, default=None)

    @property
    def group(self) -> int:
        """Return how many rungs are climbed from the lowest of them: on small problems all."""
        return max(1, self.rungs if len(self.arrays.times) <= SMALL else self.rungs // GROUPS)

    def best(self, budget: int, progress: Progress = silent) -> MeasuredProgram | None:
        """Return the quickest program that fits, of those known and of all rungs up to it."""
        known = self.known(budget)
        if known is None or known.time_us <= self.plain.time_us:
            return known
        highest = ((budget + 1) * self.rungs - 1) // max(1, self.plain.peak_bytes)
        highest = min(self.rungs, highest)  # its budget, rounded down, is at most this one
        first = max(1, (highest // self.group - 1) * self.group)
        for rung in range(first, highest + 1):
            if rung not in self._climbed:
                self._climbed[rung] = self._climb(rung)
            progress("improve", rung - first + 1, highest - first + 1)
        rungs = [self._climbed[rung] for rung in range(first, highest + 1)]
        return min((c for c in (known, *rungs) if c is not None), key=by_time)

    def _budget(self, rung: int) -> int:
        return self.plain.peak_bytes * rung // self.rungs

    def _climb(self, rung: int) -> MeasuredProgram | None:
        budget = self._budget(rung)
        below = self._climbed.get(rung - 1) if rung % self.group else None
        starts = [c for c in (self.known(budget), below) if c is not None]
        if not starts:
            return None
        floor_us = self._floor_us(rung)
        trials = [retain_more(started(self.arrays, start.program), budget) for start in starts]
        trial = min(
            (t for t in trials if t.time_us >= floor_us), key=lambda t: t.time_us, default=None
        )
        if trial is None or budget == self._budget(rung - 1):
            return min(starts, key=by_time)
        window = Window(budget, self.plain.time_us, floor_us, Random(rung), self.moving)
        again = len(trial.timeline.runs) - len(self.arrays.times)
        return window.improved(trial, min(self.trials, again + 1)).candidate()

    def _floor_us(self, rung: int) -> float:
        """Return the least time that a rung's program may have."""
        higher = self.known(self._budget(min(self.rungs, rung + self.group)))
        return higher.time_us if higher else self.plain.time_us


def bare_ladder(problem: Problem, programs: Iterable[Program], effort: Effort) -> BudgetGrid:
    """Return the ladder of a bare graph: runs move, any operation may run again.

    It starts from `programs`, the first of which is the plain one, and from lowering its peak.
    """
    arrays = ProblemArrays(problem)
    first, *others = [started(arrays, program) for program in programs]
    low = lowered(first, first.time_us, ANYWHERE)
    plain = first.candidate()
    candidates = pareto([plain, *low, *(other.candidate() for other in others)])
    rungs, trials = work_for(len(problem.operations), effort, bare=True)
    return BudgetGrid(arrays, plain, candidates, ANYWHERE, rungs, trials)


def by_time(c: MeasuredProgram) -> tuple[float, int, int]:
    """Return the order of preference: quick, of low peak, short."""
    return (c.time_us, c.peak_bytes, len(c.program.flat()))


def pareto(candidates: Iterable[MeasuredProgram]) -> list[MeasuredProgram]:
    """Return the candidates that no other beats, by rising peak."""
    front: list[MeasuredProgram] = []
    for c in sorted(candidates, key=lambda c: (c.peak_bytes, c.time_us, c.program.segments)):
        if not front or c.time_us < front[-1].time_us:
            front.append(c)
    return front
