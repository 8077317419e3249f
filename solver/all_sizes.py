"""Solve a problem for all its sizes: a schedule must fit at smaller ones, too, where it may not.

A step of fewer samples holds less, but some operations need more workspace in it. The search is
done again with as much more workspace as the best schedule lacked, then with all that is needed as
if nothing else were smaller; below that there is the schedule with the least peak. Predictions are
of the example's sizes, and so are bounds: fewer schedules cannot be quicker.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from remat_gen.solver.contest.contest import reaches
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.replay import Replay, replay
from remat_gen.solver.law.schedule import Schedule
from remat_gen.solver.law.search_types import INTERRUPTED
from remat_gen.solver.solve import InfeasibleError, Peak, Solution, Solver, Status

_ROUNDS = 3  # of searches with as much more workspace as the last schedule lacked


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """The same operations and values at other sizes; `where` says which: "a batch of 1".

    Operations that need no more room here than at the example's sizes have a workspace of 0.
    """

    where: str
    problem: Problem


@dataclass(frozen=True, slots=True)
class AllSizesSolution:
    """A schedule that fits at all sizes, and its highest peak at any."""

    solution: Solution
    peak: Peak


def highest_peak(
    figures: Replay,
    schedule: Schedule,
    elsewhere: Sequence[Elsewhere],
    of: Callable[[Replay], Replay] = lambda figures: figures,
) -> Peak:
    """Return the highest peak of a schedule with these figures, and `of` those elsewhere."""
    highest = Peak(figures.peak_bytes, figures.peak_at)
    for other in elsewhere:
        there = of(replay(other.problem, schedule))
        if there.peak_bytes > highest.nbytes:
            highest = Peak(there.peak_bytes, there.peak_at, other.where)
    return highest


@dataclass(frozen=True, slots=True)
class AllSizesSolver:
    """A strategy's search for schedules that fit at all sizes.

    `solver` is the search of the problem at the example's sizes, `make` sets up one of another.
    """

    solver: Solver
    elsewhere: tuple[Elsewhere, ...]
    make: Callable[[Problem], Solver]

    @property
    def plain(self) -> Replay:
        return self.solver.plain

    def glance(self, budget_bytes: int) -> Replay | None:
        """Return the figures at the example's sizes of what little work finds, if it does."""
        found = self.solver.glance(budget_bytes)
        return None if found is None else found.replay

    def solve(self, budget_bytes: int) -> AllSizesSolution:
        """Return the quickest schedule found.

        Raises:
            InfeasibleError: no schedule of the strategy fits, here or elsewhere.
        """
        try:
            first = self.solver.solve(budget_bytes)
        except InfeasibleError as error:
            if not self.elsewhere:
                raise
            raise self._infeasible(proved=error.proved) from error
        for found in self._candidates(first, budget_bytes):
            peak = self._peak(found.schedule)
            if peak.nbytes <= budget_bytes:
                return AllSizesSolution(found, peak)
        raise self._infeasible(proved=False)

    def _candidates(self, first: Solution, budget_bytes: int) -> Iterator[Solution]:
        """Yield schedules at the example's sizes, the quickest first."""
        yield first
        with contextlib.suppress(InfeasibleError):
            yield from self._nearer(first, budget_bytes)
        with contextlib.suppress(InfeasibleError):
            roomier = self.make(roomy(self.solver.problem, self.elsewhere))
            yield self._judged(roomier.solve(budget_bytes), first)
        yield from (self._judged(found, first) for found in self._least())

    def _nearer(self, first: Solution, budget_bytes: int) -> Iterator[Solution]:
        """Yield schedules of problems with as much more workspace as the last one lacked.

        Raises:
            InfeasibleError: that is too much.
        """
        found, problem, more = first, self.solver.problem, dict[int, int]()
        for _ in range(_ROUNDS):
            lacked = lacking(problem, self.elsewhere, found.schedule, budget_bytes)
            more.update({p: max(nbytes, more.get(p, 0)) for p, nbytes in lacked.items()})
            roomier = self.make(with_more(problem, more))
            found = self._judged(roomier.solve(budget_bytes), first)
            yield found

    def _judged(self, found: Solution, first: Solution) -> Solution:
        """Return a solution with the figures of the example's sizes, and the bound of the first."""
        figures = replay(self.solver.problem, found.schedule)
        optimal = reaches(figures.time_us, first.lower_bound_us)
        interrupted = first.interrupted or found.interrupted
        return replace(
            found,
            replay=figures,
            eager=first.eager,
            notes=(INTERRUPTED,) * interrupted,
            status=Status.OPTIMAL if optimal else Status.FEASIBLE,
            lower_bound_us=first.lower_bound_us,
            interrupted=interrupted,
        )

    def _least(self) -> Iterator[Solution]:
        """Yield schedules within smallest budgets, the same whatever was searched before."""
        for problem in (roomy(self.solver.problem, self.elsewhere), self.solver.problem):
            solver = self.make(problem)
            yield solver.solve(solver.smallest_budget().nbytes)

    def _peak(self, schedule: Schedule) -> Peak:
        return highest_peak(replay(self.solver.problem, schedule), schedule, self.elsewhere)

    def _infeasible(self, *, proved: bool) -> InfeasibleError:
        peaks = (self._peak(found.schedule) for found in self._least())
        least = min(peaks, key=lambda peak: peak.nbytes)
        return InfeasibleError(least, self.solver.strategy, proved=proved)


def roomy(problem: Problem, elsewhere: tuple[Elsewhere, ...]) -> Problem:
    """Return a problem whose operations have the room that they need at any sizes.

    It is as if all else that is resident were no smaller there.
    """
    more = {}
    for p in range(len(problem.operations)):
        needed = max((other.problem.room_bytes(p) for other in elsewhere), default=0)
        more[p] = needed - problem.room_bytes(p)
    return with_more(problem, more)


def with_more(problem: Problem, more: Mapping[int, int]) -> Problem:
    """Return a problem with more workspace; what is of one signature stays alike."""
    by_signature: dict[str, int] = {}
    for p, nbytes in more.items():
        text = problem.operations[p].signature
        by_signature[text] = max(0, nbytes, by_signature.get(text, 0))
    operations = tuple(
        replace(o, workspace_bytes=o.workspace_bytes + by_signature.get(o.signature, 0))
        for o in problem.operations
    )
    return replace(problem, operations=operations)


def lacking(
    problem: Problem, elsewhere: tuple[Elsewhere, ...], schedule: Schedule, budget_bytes: int
) -> dict[int, int]:
    """Return how much more workspace would have kept a schedule's operations within a budget.

    What else is resident shrinks here and elsewhere in proportion; that is a guess.
    """
    more: dict[int, int] = {}
    here = replay(problem, schedule).timeline
    for other in elsewhere:
        for at, there in zip(here, replay(other.problem, schedule).timeline, strict=True):
            p, excess = at.operation, there.nbytes - budget_bytes
            if excess > 0:
                room = problem.room_bytes(p)
                rest, rest_there = at.nbytes - room, there.nbytes - other.problem.room_bytes(p)
                allowed = rest - excess * rest // max(1, rest_there)
                more[p] = max(more.get(p, 0), budget_bytes - room - allowed)
    return more
