"""The least budget that a search meets, by bisection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program

FINENESS = 1 << 7  # steps of the peak to which it is known where a search takes long

Attempt: TypeAlias = Callable[[int], Program | None]
"""Search within a budget in units."""


@dataclass(frozen=True, slots=True)
class Bisection:
    """What it finds is feasible; a smaller budget between those that were tried may be, too."""

    subject: Subject
    attempt: Attempt
    exact: bool

    def least(self, known: Program) -> Program:
        """Return the program of least peak, starting from a known one."""
        best, peak = known, self._peak(known)
        least, step = self.subject.whole.floor_bytes(), 1 if self.exact else peak // FINENESS + 1
        while peak - least >= step:
            middle = (least + peak - 1) // 2
            found = self.attempt(middle)
            if found is None:
                least = middle + 1
            else:
                best, peak = found, min(self._peak(found), middle)
        return best

    def _peak(self, program: Program) -> int:
        return self.subject.judge(program)[1].peak_bytes // self.subject.unit
