"""The options of each distinct block: the two simple ones of rotor, and more where they pay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import attrgetter

from remat_gen.solver.blocks.block_option import (
    BlockChoices,
    Option,
    evaluate,
    operations_for,
    standalone,
)
from remat_gen.solver.blocks.local_block import LocalBlock


def simple_choices(block: LocalBlock) -> BlockChoices:
    """Return rotor's two options: retain all that backward reads, or only the block's input."""
    return with_leaves(block, [keep_all(block), keep_input(block)])


def keep_all(block: LocalBlock) -> Option:
    """Return the option that re-runs nothing."""
    return evaluate(block, ((),) * len(block.backward))


def keep_input(block: LocalBlock) -> Option:
    """Return the option that re-runs all that backward reads before the first read."""
    read = {v for operation in block.backward for v in operation.inputs}
    stages: list[tuple[int, ...]] = [()] * len(block.backward)
    for t, operation in enumerate(block.backward):
        if any(block.decided(v) for v in operation.inputs):
            stages[t] = operations_for(block, read)
            break
    return evaluate(block, tuple(stages))


def with_leaves(block: LocalBlock, options: Iterable[Option]) -> BlockChoices:
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
