"""The non-dominated options of a block, from z3, over a grid of (saved, peak) budgets.

Walked from the loosest budgets to the tightest, so that neighbours spare work: an option that also
fits the next point is that point's optimum, and what is infeasible stays so with less memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from remat_gen.solver.blocks.block_option import BlockChoices, Option
from remat_gen.solver.blocks.local_block import LocalBlock, Role
from remat_gen.solver.blocks.simple_options import keep_all, keep_input, with_leaves
from remat_gen.solver.blocks.z3_model import BlockModel, BudgetPoint

RLIMIT = 25_000_000  # z3's own units of work for one point, about two seconds
ALL_LEVELS = 36  # saved budgets that all distinct blocks share, if they are of
USUAL_SIZE = 700  # forward times backward operations, a transformer layer's; z3 takes 0.1 s a point


@dataclass(frozen=True, slots=True)
class Grid:
    """Budgets asked: shares k/saved_levels and k/peak_levels of what retaining everything takes."""

    saved_levels: int
    peak_levels: int
    rlimit: int = RLIMIT


def grid_for(block: LocalBlock, distinct: int) -> Grid:
    """Return a grid that is the finer the fewer and the smaller the blocks to solve are."""
    size = max(1, len(block.forward) * len(block.backward))
    saved = ALL_LEVELS * USUAL_SIZE // (max(1, distinct) * size)
    saved = max(4, min(16, saved))
    return Grid(saved, max(4, min(8, saved // 2 + 1)))


def grid_choices(
    block: LocalBlock, grid: Grid, before_each: Callable[[], None] = lambda: None
) -> tuple[BlockChoices, int, int]:
    """Return the options that z3 finds over the grid, and rotor's two; points asked, and unproved.

    `before_each` point it is asked whether to go on: it raises if not.
    """
    search = _Search(block, grid, before_each)
    search.run()
    return with_leaves(block, search.found), search.asked, search.unproved


class _Search:
    def __init__(self, block: LocalBlock, grid: Grid, before_each: Callable[[], None]) -> None:
        self.block, self.grid, self.before_each = block, grid, before_each
        self.model = BlockModel(block, grid.rlimit)
        self.everything = keep_all(block)
        self.found: list[Option] = [self.everything, keep_input(block)]
        self.optima: list[tuple[BudgetPoint, Option]] = []
        self.asked = self.unproved = 0

    def run(self) -> None:
        """Ask every saved budget."""
        pinned = self.block.bytes_of(Role.PINNED)
        if not any(o.rerun_us for o in self.found):
            return
        room = self.everything.saved_bytes - pinned
        too_low = -1
        known = self.everything
        for level in range(self.grid.saved_levels, -1, -1):
            saved = pinned + room * level // self.grid.saved_levels
            known, too_low = self._descend(saved, known, too_low)

    def _descend(self, saved: int, known: Option, too_low: int) -> tuple[Option, int]:
        """Lower the peak at one saved budget until nothing fits.

        `known` is optimal for a looser saved budget, peaks up to `too_low` are infeasible. Returns
        the same two for the next, tighter saved budget.
        """
        top = max(option.peak_bytes for option in self.found)
        loosest: Option | None = None
        current = known if known.saved_bytes <= saved else None
        levels = self.grid.peak_levels
        for level in range(levels + 1, 0, -1):
            peak = top if level > levels else self.everything.peak_bytes * level // levels
            if peak <= too_low:
                break
            if current is None or current.peak_bytes > peak:
                current, proved = self._ask(BudgetPoint(saved, peak))
                if current is None and proved:
                    too_low = max(too_low, peak)
                    break
            loosest = loosest or current
        return loosest or known, too_low

    def _ask(self, point: BudgetPoint) -> tuple[Option | None, bool]:
        if (known := self._known_at(point)) is not None:
            return known, True
        self.before_each()
        option, proved = self.model.solve(point)
        self.asked += 1
        self.unproved += not proved or self.model.rows.rounded
        if option is not None:
            self.found.append(option)
            self.optima.append((point, option))
        return option, proved

    def _known_at(self, point: BudgetPoint) -> Option | None:
        """Return an optimum of looser budgets that fits a point: it is the optimum there too."""
        for looser, option in self.optima:
            covers = looser.saved_bytes >= point.saved_bytes
            covers = covers and looser.peak_bytes >= point.peak_bytes
            fits = option.saved_bytes <= point.saved_bytes
            if covers and fits and option.peak_bytes <= point.peak_bytes:
                return option
        return None
