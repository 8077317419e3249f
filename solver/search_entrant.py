"""A strategy that searches anew for each budget, as the contest of a budget sees it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from remat_gen.solver.contest import Contest
from remat_gen.solver.problem import Problem
from remat_gen.solver.program import Program
from remat_gen.solver.search import Effort, Found, Incumbent
from remat_gen.solver.subject import Subject

FINENESS = 1 << 7  # steps of the plain peak to which a slow search's smallest budget is known


class Search(Protocol):
    """A search of a whole graph within a budget."""

    def __call__(
        self,
        problem: Problem,
        budget_bytes: int,
        effort: Effort = ...,
        on_better: Incumbent | None = ...,
    ) -> Found:
        """Search; `on_better` hears of every better schedule."""
        ...


@dataclass(frozen=True, slots=True)
class SearchEntrant:
    """A search with a name. `staged` ones need a forward and a backward half of a bare graph."""

    subject: Subject
    name: str
    search: Search
    effort: Effort
    staged: bool
    quick: bool = True

    def enter(self, contest: Contest) -> None:
        """Offer every better schedule as it is found."""
        hear = contest.listen(self.name)

        def on_better(runs: tuple[int, ...], time_us: float) -> None:
            hear(self._unstaged(runs), time_us)

        contest.take(self.name, self._found(contest.budget_units, self.effort, on_better))

    def smallest(self) -> Program:
        """Return the program of least peak that bisection finds.

        What it finds is feasible; a smaller budget between those that were tried may be, too. A
        search that takes long is asked for shares of the plain peak only.
        """
        problem = self.subject.whole
        most = 2 * sum(v.nbytes for v in problem.values)
        most += max((o.workspace_bytes for o in problem.operations), default=0)
        best, peak = self._least(most)
        least, step = _floor(problem), 1 if self.quick else peak // FINENESS + 1
        while peak - least >= step:
            middle = (least + peak - 1) // 2
            found, lower = self._least(middle)
            if found is None or lower > middle:
                least = middle + 1
            else:
                best, peak = found, lower
        return best or self.subject.plain()

    def unproved(self) -> tuple[int, int]:
        """Return that z3 was asked for no block options."""
        return 0, 0

    def _least(self, budget_units: int) -> tuple[Program | None, int]:
        """Return a program within a budget, and its peak in units; without one the plain peak."""
        effort = Effort.QUICK if self.quick else self.effort
        runs = self._found(budget_units, effort, None).runs
        program = self.subject.plain() if runs is None else self.subject.program(runs)
        peak = self.subject.judge(program)[1].peak_bytes // self.subject.unit
        return (None if runs is None else program), peak

    def _found(self, budget_units: int, effort: Effort, on_better: Incumbent | None) -> Found:
        problem = self.subject.staged if self.staged else self.subject.whole
        found = self.search(problem, budget_units, effort=effort, on_better=on_better)
        if found.runs is None:
            return found
        return replace(found, runs=self._unstaged(found.runs))

    def _unstaged(self, runs: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(self.subject.order[p] for p in runs) if self.staged else runs


def _floor(problem: Problem) -> int:
    """Return the most that one operation alone needs: no schedule has a lower peak."""

    def alone(inputs: tuple[int, ...], outputs: tuple[int, ...]) -> int:
        return sum(problem.values[v].nbytes for v in {*inputs, *outputs})

    operations = problem.operations
    return max((alone(o.inputs, o.outputs) + o.workspace_bytes for o in operations), default=0)
