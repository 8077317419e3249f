"""The non-dominated options of a block, from z3, over a grid of (saved, peak) budgets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

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

    `before_each` point it is asked whether to go on: it raises if not. The loosest budgets come
    first, so that neighbours spare work: an option that also fits the next point is that point's
    optimum, and what is infeasible stays so with less memory.
    """
    everything, least = keep_all(block), keep_input(block)
    found = [everything, least]
    if not least.rerun_us:
        return with_leaves(block, found), 0, 0
    model = BlockModel(block, grid.rlimit)
    known: list[tuple[BudgetPoint, Option]] = [(BudgetPoint(inf, inf), everything)]
    asked = unproved = too_low = 0
    pinned = block.bytes_of(Role.PINNED)
    for level in range(grid.saved_levels, -1, -1):
        saved = pinned + (everything.saved_bytes - pinned) * level // grid.saved_levels
        top = max(option.peak_bytes for option in found)
        shares = range(grid.peak_levels, 0, -1)
        for peak in (top, *(everything.peak_bytes * k // grid.peak_levels for k in shares)):
            point = BudgetPoint(saved, peak)
            if peak <= too_low:
                break
            if any(at.covers(point) and point.admits(option) for at, option in known):
                continue
            before_each()
            option, proved = model.solve(point)
            asked += 1
            unproved += not proved or model.rounded
            if option is not None:
                found.append(option)
                known.append((point, option))
            elif proved:
                too_low = peak
                break
    return with_leaves(block, found), asked, unproved
