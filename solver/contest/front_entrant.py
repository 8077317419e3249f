"""A strategy that has all its programs before it hears of a budget."""

from __future__ import annotations

from functools import cached_property

from remat_gen.solver.chain.program_front import Front, build_front
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.improve.budget_grid import BudgetGrid, bare_ladder
from remat_gen.solver.improve.memory_measure import MeasuredProgram
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.search_types import Effort, Progress


class FrontEntrant:
    """A strategy of `program_front.py`; all but per-layer know the given order of bare graphs."""

    def __init__(
        self,
        subject: Subject,
        name: str,
        progress: Progress,
        effort: Effort,
        rotor: FrontEntrant | None = None,
    ) -> None:
        """Set up; the front is built when it is first asked for, `rotor`'s before rockmate's."""
        self.subject, self.name, self.rotor = subject, name, rotor
        self.progress, self.effort = progress, effort

    @cached_property
    def front(self) -> Front:
        """Return all programs of the strategy."""
        rotor = self.rotor.front if self.rotor else None
        return build_front(self.subject.staged, self.name, self.progress, self.effort, rotor)

    def enter(self, contest: Contest) -> None:
        """Offer the plain program, then the front's quickest one that fits."""
        if self._knows_plain():
            contest.offer(self.name, self.subject.plain())
            if contest.optimal:
                return
        for candidate in self.candidates(contest.budget_units):
            if candidate is not None:
                contest.offer(self.name, self._on_whole(candidate.program))

    def candidates(
        self, budget_units: int
    ) -> tuple[MeasuredProgram | None, MeasuredProgram | None]:
        """Return the quickest program that fits as it was found, and the quickest improved."""
        programs = self.ladder if self._orders_freely() else self.front
        return programs.known(budget_units), programs.best(budget_units, self.progress)

    @cached_property
    def ladder(self) -> BudgetGrid:
        """Return the front's programs of a bare graph, improved with runs in any order."""
        programs = [self.subject.unstaged(c.program) for c in self.front.candidates]
        programs = [self.subject.plain(), *programs]
        return bare_ladder(self.subject.whole, programs, self.effort)

    def smallest(self) -> Program:
        """Return the program of least peak."""
        programs = [self.subject.unstaged(self.front.smallest().program)]
        programs += [self.subject.plain()] * self._knows_plain()
        if self._orders_freely():
            programs.append(self.ladder.candidates[0].program)
        return min(programs, key=lambda program: self.subject.judge(program)[1].peak_bytes)

    def _orders_freely(self) -> bool:
        return self.name == "rockmate" and self.subject.chain is None

    def _on_whole(self, program: Program) -> Program:
        return program if self._orders_freely() else self.subject.unstaged(program)

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        if "front" not in vars(self):
            return 0, 0
        return self.front.unproved, self.front.asked

    def _knows_plain(self) -> bool:
        return self.name != "per-layer"
