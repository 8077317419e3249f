"""Programs improved up to fixed shares of the plain peak, each rung from the one below it.

Improving for a budget itself could make a larger budget slower than a smaller one. Here a budget
only chooses among programs that do not depend on it: more memory never costs time. On large
problems rungs come in groups, climbed from the bottom of each, and a budget looks at its own group
and the one below. What lies lower cannot be quicker: a rung takes no program that is quicker than
the known one that the rung of its place in the next group has.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

from remat_gen.solver.improve.memory_measure import MeasuredProgram, started
from remat_gen.solver.improve.problem_arrays import ProblemArrays
from remat_gen.solver.improve.retain_more import retain_more
from remat_gen.solver.improve.ruin_and_recreate import ANYWHERE, STILL, Moving, Window, lowered
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Progress, silent

SMALL = 150  # operations up to which all rungs below a budget are climbed
LARGE = 1000  # operations above which there are fewer trials


@dataclass(frozen=True, slots=True)
class Work:
    """`rungs` are budgets improved, as shares of the plain peak, in groups of `group`; of each
    rung so many `trials`.
    """

    rungs: int
    group: int
    trials: int


NO_WORK = Work(rungs=0, group=1, trials=0)
_LARGE = {
    Effort.QUICK: Work(rungs=100, group=4, trials=10),
    Effort.NORMAL: Work(rungs=400, group=16, trials=12),
    Effort.THOROUGH: Work(rungs=200, group=8, trials=400),
}
_SMALL = {
    Effort.QUICK: Work(rungs=20, group=20, trials=10),
    Effort.NORMAL: Work(rungs=50, group=50, trials=24),
    Effort.THOROUGH: Work(rungs=100, group=100, trials=300),
}


def work_for(operations: int, effort: Effort) -> Work:
    """Return the work for a problem of so many operations; a trial's time grows with them."""
    if operations <= SMALL:
        return _SMALL[effort]
    work = _LARGE[effort]
    return replace(work, trials=max(1, min(work.trials, work.trials * LARGE // operations)))


def bare_work(operations: int, effort: Effort) -> Work:
    """Return the work for a bare graph: trials take longer, since runs move."""
    if operations <= SMALL:
        return _SMALL[Effort.QUICK if effort is Effort.NORMAL else effort]
    work = work_for(operations, effort)
    return replace(work, rungs=max(1, work.rungs // 4), group=max(1, work.group // 4))


@dataclass(slots=True)
class BudgetGrid:
    """`candidates` by rising peak and falling time; `plain` runs everything once.

    Without `work` none is improved.
    """

    arrays: ProblemArrays
    plain: MeasuredProgram
    candidates: list[MeasuredProgram]
    work: Work = NO_WORK
    moving: Moving = STILL
    _rungs: dict[int, MeasuredProgram | None] = field(default_factory=dict)

    def known(self, budget: int) -> MeasuredProgram | None:
        """Return the quickest program that fits without improving any."""
        return quickest(self.candidates, budget)

    def best(self, budget: int, progress: Progress = silent) -> MeasuredProgram | None:
        """Return the quickest program that fits, of those known and of all rungs up to it."""
        known = self.known(budget)
        if known is None or known.time_us <= self.plain.time_us:
            return known
        highest = ((budget + 1) * self.work.rungs - 1) // max(1, self.plain.peak_bytes)
        highest = min(self.work.rungs, highest)  # its budget, rounded down, is at most this one
        first = max(1, (highest // self.work.group - 1) * self.work.group)
        for rung in range(first, highest + 1):
            if rung not in self._rungs:
                self._rungs[rung] = self._climbed(rung)
            progress("improve", rung - first + 1, highest - first + 1)
        rungs = [self._rungs[rung] for rung in range(first, highest + 1)]
        return min((c for c in (known, *rungs) if c is not None), key=by_time)

    def _budget(self, rung: int) -> int:
        return self.plain.peak_bytes * rung // self.work.rungs

    def _climbed(self, rung: int) -> MeasuredProgram | None:
        budget = self._budget(rung)
        below = self._rungs.get(rung - 1) if rung % self.work.group else None
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
        return window.improved(trial, min(self.work.trials, again + 1)).candidate()

    def _floor_us(self, rung: int) -> float:
        """Return the least time that a rung's program may have."""
        higher = self.known(self._budget(min(self.work.rungs, rung + self.work.group)))
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
    work = bare_work(len(problem.operations), effort)
    return BudgetGrid(arrays, plain, candidates, work, ANYWHERE)


def by_time(c: MeasuredProgram) -> tuple[float, int, int]:
    """Return the order of preference: quick, of low peak, short."""
    return (c.time_us, c.peak_bytes, len(c.program.flat()))


def quickest(candidates: Iterable[MeasuredProgram], budget: int) -> MeasuredProgram | None:
    """Return the candidate of least time that fits a budget, or None."""
    return min((c for c in candidates if c.peak_bytes <= budget), key=by_time, default=None)


def pareto(candidates: Iterable[MeasuredProgram]) -> list[MeasuredProgram]:
    """Return the candidates that no other beats, by rising peak."""
    front: list[MeasuredProgram] = []
    for c in sorted(candidates, key=lambda c: (c.peak_bytes, c.time_us, c.program.segments)):
        if not front or c.time_us < front[-1].time_us:
            front.append(c)
    return front
