"""The non-dominated options of a block, from z3, over a grid of (saved, peak) budgets.

Walked from the loosest budgets to the tightest, so that neighbours spare work: an option that also
fits the next point is that point's optimum, and what is infeasible stays so with less memory.
"""

from __future__ import annotations

from dataclasses import dataclass

from remat_gen.solver.block_model import Point, Status, solve_point
from remat_gen.solver.chain_costs import BlockChoices
from remat_gen.solver.local import LocalBlock, Role
from remat_gen.solver.option import Option
from remat_gen.solver.options import keep_all, keep_input, with_leaves

SAVED_LEVELS = 16  # saved budgets: k/16 of what retaining everything needs
PEAK_LEVELS = 12  # peak budgets: k/12 of the peak of retaining everything
RLIMIT = 40_000_000  # z3's own units of work for one point, about ten seconds


@dataclass(frozen=True, slots=True)
class GridResult:
    """A block's choices, and how many of the points asked were proved."""

    choices: BlockChoices
    asked: int
    unproved: int


def grid_choices(block: LocalBlock, rlimit: int = RLIMIT) -> GridResult:
    """Return the options that z3 finds over the grid, and rotor's two."""
    search = _Search(block, rlimit)
    search.run()
    choices = with_leaves(block, search.found)
    return GridResult(choices, search.asked, search.unproved)


class _Search:
    def __init__(self, block: LocalBlock, rlimit: int) -> None:
        self.block, self.rlimit = block, rlimit
        self.everything = keep_all(block)
        self.found: list[Option] = [self.everything, keep_input(block)]
        self.asked = self.unproved = 0

    def run(self) -> None:
        """Ask every saved budget, then those of leaves, which have nothing but what enters."""
        pinned = self.block.bytes_of(Role.PINNED)
        if not any(o.rerun_us for o in self.found):
            return
        room = self.everything.saved_bytes - pinned
        too_low = -1
        known = self.everything
        for level in range(SAVED_LEVELS, -1, -1):
            saved = pinned + room * level // SAVED_LEVELS
            known, too_low = self._descend(saved, True, known, too_low)
        self._descend(pinned, False, None, -1)

    def _descend(
        self, saved: int, exits_free: bool, known: Option | None, too_low: int
    ) -> tuple[Option, int]:
        """Lower the peak at one saved budget until nothing fits.

        `known` is optimal for a looser saved budget, peaks up to `too_low` are infeasible. Returns
        the same two for the next, tighter saved budget.
        """
        top = max(option.peak_bytes for option in self.found)
        loosest: Option | None = None
        current = known if known and known.saved_bytes <= saved else None
        for level in range(PEAK_LEVELS + 1, 0, -1):
            peak = top if level > PEAK_LEVELS else self.everything.peak_bytes * level // PEAK_LEVELS
            if peak <= too_low:
                break
            if current is None or current.peak_bytes > peak:
                status, current = self._ask(Point(saved, peak, exits_free), current)
                if status is Status.INFEASIBLE:
                    too_low = max(too_low, peak)
                    break
            loosest = loosest or current
        return loosest or known or self.everything, too_low

    def _ask(self, point: Point, current: Option | None) -> tuple[Status, Option | None]:
        answer = solve_point(self.block, point, self.rlimit)
        self.asked += 1
        self.unproved += answer.status is Status.UNKNOWN
        if answer.option is not None:
            self.found.append(answer.option)
        return answer.status, answer.option
