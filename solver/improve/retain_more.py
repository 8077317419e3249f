"""Local improvement on exact figures: use the slack that slots and persistent options left.

A re-run is left out, and with it all re-runs that only served it, where its result fits in memory
until it is read. Every trial is measured as a whole. Work is bounded by counts, never by time, so
that the result does not depend on the machine.
"""

from __future__ import annotations

from remat_gen.solver.improve.memory_measure import Trial, trial_of
from remat_gen.solver.improve.slack import Rerun, removable, surely_over

WORK = 200_000  # runs measured in all, per improvement


def retain_more(start: Trial, budget_bytes: int) -> Trial:
    """Leave out re-runs, the most expensive first, while the peak fits the budget.

    What did not fit is not tried again: what is retained instead hardly ever makes room.
    """
    best, tried, work = start, set[Rerun](), WORK
    while True:
        slack = budget_bytes - best.inside
        for position, rerun in removable(best.timeline, slack):
            if rerun in tried:
                continue
            work -= best.timeline.length
            if not surely_over(best.timeline, slack, position):
                trial = trial_of(best.timeline.without([position]))
                if trial.peak_bytes <= budget_bytes and trial.time_us < best.time_us:
                    best = trial
                    break
            if work < 0:
                return best
            tried.add(rerun)
        else:
            return best
