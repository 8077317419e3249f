"""The non-dominated options of a block: rotor's two, and those of z3 over a grid of budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf
from operator import attrgetter

from remat_gen.solver.blocks.block_option import (
    BlockChoices,
    Option,
    RerunStages,
    evaluate,
    operations_for,
    standalone,
)
from remat_gen.solver.blocks.local_block import LocalBlock, Role
from remat_gen.solver.blocks.z3_model import BlockModel

RLIMIT = 25_000_000  # z3's own units of work for one point, about two seconds
ALL_LEVELS = 36  # saved budgets that all distinct blocks share, if they are of
USUAL_SIZE = 700  # forward times backward operations, a transformer layer's; z3 takes 0.1 s a point


@dataclass(frozen=True, slots=True)
class Grid:
    """Budgets asked: shares k/saved_levels and k/peak_levels of what retaining everything takes."""

    saved_levels: int
    peak_levels: int
    rlimit: int = RLIMIT


def simple_choices(block: LocalBlock) -> BlockChoices:
    """Return rotor's two options: retain all that backward reads, or only the block's input."""
    return _with_leaves(block, _simple_options(block))


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
    everything, least = _simple_options(block)
    found = [everything, least]
    if not least.rerun_us:
        return _with_leaves(block, found), 0, 0
    model = BlockModel(block, grid.rlimit)
    known: list[tuple[float, float, Option]] = [(inf, inf, everything)]
    asked = unproved = too_low = 0
    pinned = block.bytes_of(Role.PINNED)
    for level in range(grid.saved_levels, -1, -1):
        saved = pinned + (everything.saved_bytes - pinned) * level // grid.saved_levels
        top = max(option.peak_bytes for option in found)
        shares = range(grid.peak_levels, 0, -1)
        for peak in (top, *(everything.peak_bytes * k // grid.peak_levels for k in shares)):
            if peak <= too_low:
                break
            if any(
                looser >= saved >= option.saved_bytes and higher >= peak >= option.peak_bytes
                for looser, higher, option in known
            ):
                continue
            before_each()
            option, proved = model.solve(saved, peak)
            asked += 1
            unproved += not proved or model.rounded
            if option is not None:
                found.append(option)
                known.append((saved, peak, option))
            elif proved:
                too_low = peak
                break
    return _with_leaves(block, found), asked, unproved


def _simple_options(block: LocalBlock) -> tuple[Option, Option]:
    """Return the option that re-runs nothing, and that which re-runs all before the first read."""
    nothing: RerunStages = ((),) * len(block.backward)
    read = {v for operation in block.backward for v in operation.inputs}
    reads = [any(map(block.decided, operation.inputs)) for operation in block.backward]
    if True not in reads:
        return evaluate(block, nothing), evaluate(block, nothing)
    t = reads.index(True)
    everything = (*nothing[:t], operations_for(block, read), *nothing[t + 1 :])
    return evaluate(block, nothing), evaluate(block, everything)


def _with_leaves(block: LocalBlock, options: Iterable[Option]) -> BlockChoices:
    """Return the non-dominated options and, of their standalone forms, the non-dominated ones."""
    found = list(dict.fromkeys(options))
    leaves = [standalone(block, option) for option in found]
    return BlockChoices(_front(found + leaves, _inner_figures), _front(leaves, _leaf_figures))


_inner_figures: Callable[[Option], tuple[float, ...]] = attrgetter(
    "rerun_us",
    "saved_bytes",
    "backward_peak_bytes",
    "first_peak_bytes",
    "again_us",
    "again_peak_bytes",
)
_leaf_figures: Callable[[Option], tuple[float, ...]] = attrgetter("rerun_us", "backward_peak_bytes")


def _front(
    options: list[Option], figures: Callable[[Option], tuple[float, ...]]
) -> tuple[Option, ...]:
    """Return the options that no other beats or equals in every figure, quickest first."""
    ordered = sorted(dict.fromkeys(options), key=lambda o: (figures(o), o.stages))
    front: list[Option] = []
    for option in ordered:
        mine = figures(option)
        beaten = any(all(a <= b for a, b in zip(figures(o), mine, strict=True)) for o in front)
        if not beaten:
            front.append(option)
    return tuple(front)
