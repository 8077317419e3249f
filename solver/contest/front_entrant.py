"""A strategy that has all its programs before it hears of a budget."""

from __future__ import annotations

from functools import cached_property

from remat_gen.solver.chain.program_front import Front, build_front
from remat_gen.solver.contest.contest import Contest
from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.improve.budget_grid import BudgetGrid, bare_ladder
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
        rotor = self.rotor.front if self.rotor else None
        return build_front(self.subject.staged, self.name, self.progress, self.effort, rotor)

    def enter(self, contest: Contest) -> None:
        """Offer the plain program, then the quickest one that fits: as it was found, improved."""
        if self._knows_plain():
            contest.offer(self.name, self.subject.plain())
            if contest.optimal:
                return
        free, units = self._orders_freely(), contest.budget_units
        grid = self.ladder if free else self.front.grid
        for found in (grid.known(units), grid.best(units, self.progress)):
            if found is not None:
                program = found.program if free else self.subject.unstaged(found.program)
                contest.offer(self.name, program)

    @cached_property
    def ladder(self) -> BudgetGrid:
        """Return the front's programs of a bare graph, improved with runs in any order."""
        programs = [self.subject.unstaged(c.program) for c in self.front.grid.candidates]
        programs = [self.subject.plain(), *programs]
        return bare_ladder(self.subject.whole, programs, self.effort)

    def smallest(self) -> Program:
        programs = [self.subject.unstaged(self.front.grid.candidates[0].program)]
        programs += [self.subject.plain()] * self._knows_plain()
        if self._orders_freely():
            programs.append(self.ladder.candidates[0].program)
        return min(programs, key=lambda program: self.subject.judge(program)[1].peak_bytes)

    def _orders_freely(self) -> bool:
        return self.name == "rockmate" and self.subject.chain is None

    def unproved(self) -> tuple[int, int]:
        """Return how many block options were not proved, of how many."""
        if "front" not in vars(self):
            return 0, 0
        return self.front.unproved, self.front.asked

    def _knows_plain(self) -> bool:
        return self.name != "per-layer"
