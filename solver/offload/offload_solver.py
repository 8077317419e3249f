"""Re-runs and the host together: the third choice, on top of what any strategy finds.

As much more memory as the engines can make room for in forward's time is what offload is worth at
best: within several such budgets schedules are found that only run again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from remat_gen.solver.all_sizes import AllSizesSolution, AllSizesSolver, Elsewhere, highest_peak
from remat_gen.solver.contest.contest import Entry
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.program import program_of
from remat_gen.solver.law.replay import Replay
from remat_gen.solver.law.sums import added
from remat_gen.solver.offload.offload_search import NAME, OffloadSearch
from remat_gen.solver.solve import InfeasibleError, Peak, Solution, Status

BUDGETS = 12  # larger ones that schedules are found within
REACH = 1.25  # the largest, in what an engine copies during forward
REFINED = 4  # of the schedules, the quickest, are made better


@dataclass(frozen=True, slots=True)
class OffloadSolver:
    """`reruns` is the search without the host, of the same problem and `elsewhere`."""

    problem: Problem
    reruns: AllSizesSolver
    elsewhere: tuple[Elsewhere, ...] = ()

    @property
    def plain(self) -> Replay:
        return self.reruns.plain

    def glance(self, budget_bytes: int) -> Replay | None:
        """Return the figures of what little work finds, here alone, if it finds anything."""
        search = OffloadSearch(self.problem, budget_bytes)
        budgets = (budget_bytes, *self._larger(budget_bytes)[3::4])  # a few of them
        found = (self.reruns.solver.glance(budget) for budget in budgets)
        trips = (search.fitted(program_of(one.schedule)) for one in found if one is not None)
        figures = (trip.replay for trip in trips if trip is not None)
        return min(figures, key=lambda replay: replay.time_us, default=None)

    def solve(self, budget_bytes: int) -> AllSizesSolution:
        """Return the quickest schedule found: no slower than the one that only runs again.

        Raises:
            InfeasibleError: none fits, neither with the host nor without.
        """
        try:
            known: AllSizesSolution | None = self.reruns.solve(budget_bytes)
        except InfeasibleError as error:
            known, infeasible = None, error
        if known is not None and not known.solution.replay.reruns:
            return known
        best = self._best(budget_bytes, known)
        if best is None:
            if known is None:
                raise infeasible
            return known
        return AllSizesSolution(self._solution(best, known), self._peak(best))

    def _best(self, budget_bytes: int, known: AllSizesSolution | None) -> Entry | None:
        """Return the quickest schedule that travels; None where none is quicker than is known."""
        search = OffloadSearch(self.problem, budget_bytes)
        starts = [known.solution] if known is not None else []
        starts += self._within_more(budget_bytes)
        fitted = (search.fitted(program_of(start.schedule)) for start in starts)
        quickest = sorted(
            (trip for trip in fitted if trip is not None), key=lambda trip: trip.replay.time_us
        )
        trips = [search.improved(trip) for trip in quickest[:REFINED]]
        limit = known.solution.replay.time_us if known is not None else float("inf")
        fits = [
            t for t in trips if t.replay.time_us < limit and self._peak(t).nbytes <= budget_bytes
        ]
        return min(fits, key=self._rank, default=None)

    def _rank(self, trip: Entry) -> tuple[float, int, int]:
        """Return what is less for better ones: the time, what travels, the peak."""
        sent = sum(self.problem.values[v].nbytes for v in trip.replay.travelled)
        return trip.replay.time_us, sent, trip.replay.peak_bytes

    def _within_more(self, budget_bytes: int) -> Iterator[Solution]:
        """Yield schedules that only run again, within larger and larger budgets."""
        for budget in self._larger(budget_bytes):
            try:
                found = self.reruns.solver.solve(budget)
            except InfeasibleError:
                continue
            yield found
            if not found.replay.reruns:
                return

    def _larger(self, budget_bytes: int) -> list[int]:
        """Return larger budgets, the last by as much as an engine may make room for."""
        assert self.problem.link is not None
        forward = self.problem.operations[: self.problem.forward_count]
        copied = self.problem.link.bytes_per_us * added(o.time_us for o in forward)
        most = max(0, min(int(REACH * copied), self.plain.peak_bytes - budget_bytes))
        found = {budget_bytes + most * step // BUDGETS for step in range(1, BUDGETS + 1)}
        return sorted(found - {budget_bytes})

    def _solution(self, best: Entry, known: AllSizesSolution | None) -> Solution:
        return Solution(
            strategy=NAME,
            schedule=best.schedule,
            replay=best.replay,
            eager=self.plain,
            proved=True,
            notes=(),
            blocks=self.reruns.solver.subject.block_ranges(),
            status=Status.FEASIBLE,
            lower_bound_us=self.problem.once_us,
            interrupted=known is not None and known.solution.interrupted,
        )

    def _peak(self, trip: Entry) -> Peak:
        there = [replace(e, problem=self._travelling(e.problem)) for e in self.elsewhere]
        return highest_peak(trip.replay, trip.schedule, there)

    def _travelling(self, problem: Problem) -> Problem:
        """Return the problem at other sizes, with the same values that may travel."""
        pairs = zip(problem.values, self.problem.values, strict=True)
        values = tuple(replace(value, travels=own.travels) for value, own in pairs)
        return replace(problem, values=values, link=self.problem.link)
