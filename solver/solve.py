"""Solve a scheduling problem within a budget: the solver's front door.

Every figure handed out is that of the replay.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.chain import Progress
from remat_gen.solver.front import Front, build_front
from remat_gen.solver.improve import Candidate
from remat_gen.solver.liveness import to_schedule
from remat_gen.solver.partition import block_ranges
from remat_gen.solver.problem import Problem
from remat_gen.solver.replay import Replay, replay
from remat_gen.solver.schedule import Schedule

STRATEGIES = ("rockmate", "rotor", "per-layer", "none")


class InfeasibleError(ValueError):
    """No schedule of the strategy fits the budget."""

    def __init__(self, smallest_bytes: int, operation_index: int, strategy: str) -> None:
        super().__init__(f"the smallest budget feasible for {strategy} is {smallest_bytes} bytes")
        self.smallest_bytes = smallest_bytes
        self.operation_index = operation_index
        self.strategy = strategy


@dataclass(frozen=True, slots=True)
class SmallestBudget:
    """The least budget a strategy can meet, and the index of the operation that sets it."""

    nbytes: int
    operation: int


@dataclass(frozen=True, slots=True)
class Solution:
    """A schedule within the budget, and the plain one (`eager`) on the same blocks.

    `proved` tells whether z3 proved all options it was asked for; `blocks` are the ranges of
    forward operations; `notes` are sentences for the user.
    """

    strategy: str
    schedule: Schedule
    replay: Replay
    eager: Replay
    proved: bool
    notes: tuple[str, ...]
    blocks: tuple[tuple[int, int], ...]


class Solver:
    """A strategy's search on one problem: done once, then asked for any number of budgets."""

    def __init__(
        self, problem: Problem, strategy: str = "rockmate", progress: Progress | None = None
    ) -> None:
        """Search.

        Raises:
            ValueError: the strategy is unknown.
        """
        if strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {strategy}; known are {', '.join(STRATEGIES)}")
        self.problem, self.strategy = problem, strategy
        self.front: Front = build_front(problem, strategy, progress)
        self._schedules: dict[Candidate, tuple[Schedule, Replay]] = {}

    def solve(self, budget_bytes: int) -> Solution:
        """Return the quickest schedule found within the budget.

        Raises:
            InfeasibleError: no schedule of the strategy fits.
        """
        chosen = self.front.best(budget_bytes // self.front.unit)
        if chosen is None:
            smallest = self.smallest_budget()
            raise InfeasibleError(smallest.nbytes, smallest.operation, self.strategy)
        schedule, judged = self._judged(chosen)
        assert judged.peak_bytes <= budget_bytes, "the replay exceeds what was measured"
        eager = self._judged(self.front.eager)[1]
        ranges = block_ranges(self.front.chain)
        notes, proved = self._notes(), not self.front.unproved
        return Solution(self.strategy, schedule, judged, eager, proved, notes, ranges)

    def smallest_budget(self) -> SmallestBudget:
        """Return the smallest budget that is feasible for this strategy."""
        judged = self._judged(self.front.smallest())[1]
        return SmallestBudget(judged.peak_bytes, judged.peak_at)

    def _judged(self, chosen: Candidate) -> tuple[Schedule, Replay]:
        if chosen not in self._schedules:
            schedule = to_schedule(self.problem, chosen.program)
            self._schedules[chosen] = schedule, replay(self.problem, schedule)
        return self._schedules[chosen]

    def _notes(self) -> tuple[str, ...]:
        front = self.front
        if not front.unproved:
            return ()
        return (f"{front.unproved} of {front.asked} block options were not proved optimal",)


def solve(
    problem: Problem,
    budget_bytes: int,
    strategy: str = "rockmate",
    progress: Progress | None = None,
) -> Solution:
    """Schedule a problem within a budget; for several budgets keep a `Solver`.

    Raises:
        InfeasibleError: no schedule of the strategy fits the budget.
        ValueError: the strategy is unknown.
    """
    return Solver(problem, strategy, progress).solve(budget_bytes)


def smallest_budget(problem: Problem, strategy: str = "rockmate") -> SmallestBudget:
    """Return the smallest budget that is feasible for a strategy."""
    return Solver(problem, strategy).smallest_budget()
