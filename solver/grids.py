"""The options of many blocks, in as many processes as there are cores for.

Blocks are searched apart from each other, so that nothing depends on how many there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from remat_gen.solver.ahead import Ahead, cores
from remat_gen.solver.local import LocalBlock
from remat_gen.solver.option_grid import Grid, GridResult, grid_choices, grid_for
from remat_gen.solver.search import Progress, silent

HELPERS = 6  # processes beside this one, at most: each takes some 70 MB
LONG = 150  # forward times backward operations of a block that takes longer than to start a process
BUSY = 2  # cores that are: this search's, and that of the one it runs beside

Task: TypeAlias = tuple[LocalBlock, Grid]


@dataclass(frozen=True, slots=True)
class GridSearch:
    """The search of some blocks' grids, as another process can do it."""

    tasks: tuple[Task, ...]

    def __call__(self, progress: Progress) -> dict[LocalBlock, GridResult]:
        """Search them; "solve block" is reported before each of z3's answers."""
        found = {}
        for number, (block, grid) in enumerate(self.tasks, 1):
            report = partial(progress, "solve block", number, len(self.tasks))
            report()
            found[block] = grid_choices(block, grid, report)
        return found


def grids_of(distinct: Sequence[LocalBlock], progress: Progress) -> dict[LocalBlock, GridResult]:
    """Return what is found for each of the blocks, which all differ."""
    with_choices = sum(bool(block.backward) for block in distinct)
    tasks = [(block, grid_for(block, with_choices)) for block in distinct]
    own, *others = map(GridSearch, _shared(tasks, min(HELPERS, cores() - BUSY)))
    with ExitStack() as stack:
        helpers = [stack.enter_context(Ahead(search)) for search in others]
        found = own(progress)
        for search, helper in zip(others, helpers, strict=True):
            found |= helper.wait(silent) or search(progress)
    return {block: found[block] for block in distinct}


def _shared(tasks: Sequence[Task], helpers: int) -> list[tuple[Task, ...]]:
    """Share the long tasks out, the longest first, each to who has least; the rest is our own."""
    shares: list[list[Task]] = [[] for _ in range(1 + max(0, helpers))]
    sizes = [0] * len(shares)
    for task in sorted(tasks, key=lambda task: -_size(task)):
        least = sizes.index(min(sizes)) if _size(task) >= LONG else 0
        shares[least].append(task)
        sizes[least] += _size(task)
    own, *others = map(tuple, shares)
    return [own, *(share for share in others if share)]


def _size(task: Task) -> int:
    block, _ = task
    return len(block.forward) * len(block.backward)
