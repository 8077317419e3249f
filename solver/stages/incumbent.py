"""The best schedule found so far, shared by all searches of one problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat_gen.solver.stages.judged_runs import Judged
from remat_gen.solver.states.bit_graph import NEVER


@dataclass(slots=True)
class IncumbentSchedule:
    """The best schedule within a budget; `hear` is called with each better one."""

    budget_bytes: int
    hear: Callable[[Judged], None]
    judged: Judged | None = None

    @property
    def time_us(self) -> float:
        """Return its time, infinite where there is none."""
        return NEVER if self.judged is None else self.judged.time_us

    def offer(self, judged: Judged | None) -> None:
        """Take a schedule if it is within the budget and quicker."""
        if judged is None or judged.replay.peak_bytes > self.budget_bytes:
            return
        if judged.time_us < self.time_us:
            self.judged = judged
            self.hear(judged)
