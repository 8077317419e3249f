"""The least budget that a search meets, from a known one down."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from remat_gen.solver.contest.subject import Subject
from remat_gen.solver.law.program import Program

FINENESS = 1 << 7  # steps of the peak to which it is known where a search takes long

Attempt: TypeAlias = Callable[[int], Program | None]
"""Search within a budget in units."""


def least_program(
    subject: Subject, attempt: Attempt, known: Program, *, exact: bool, close: bool = False
) -> Program:
    """Return the program of least peak that attempts find, from a known one down.

    What it finds is feasible; a smaller budget between those that were tried may be, too. Where
    what is known is `close` to the least, an attempt far below takes the longest and finds nothing:
    steps down double until one fails. Else, and then, what is left is halved.
    """

    def peak_of(program: Program) -> int:
        return subject.judge(program)[1].peak_bytes // subject.unit

    best, peak = known, peak_of(known)
    least, step = subject.whole.floor_bytes(), 1 if exact else peak // FINENESS + 1
    down = step if close else 0
    while peak - least >= step:
        budget = max(least, peak - down) if down else (least + peak - 1) // 2
        found = attempt(budget)
        if found is None:
            least, down = budget + 1, 0
        else:
            best, peak, down = found, min(peak_of(found), budget), 2 * down
    return best
