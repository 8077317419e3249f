"""How much work each effort stands for: all counts of the searches in one place, never seconds."""

from __future__ import annotations

from dataclasses import dataclass, replace

from remat_gen.solver.law.search_types import Effort

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
