"""What the chain recurrence decides, as a tree, and the program it stands for.

`Leaf` runs one block and its backward; `Inner` runs a block's forward with an option, then the rest
of the range, then its backward; `Checkpoint` runs blocks i … k-1 forward keeping only f_k, then the
range from k, then the range i … k again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from typing import TypeAlias

from remat_gen.solver.blocks.block_option import Option
from remat_gen.solver.chain.chain_costs import ChainCosts


@dataclass(frozen=True, slots=True)
class ChainLeaf:
    """Block `i` alone."""

    i: int
    option: Option


@dataclass(frozen=True, slots=True)
class Inner:
    """Block `i` with an option around the plan of what follows."""

    i: int
    option: Option
    rest: ChainPlan


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Blocks i … k-1 run forward only; `later` is the range from k, `again` the range i … k."""

    i: int
    k: int
    later: ChainPlan
    again: ChainPlan


ChainPlan: TypeAlias = ChainLeaf | Inner | Checkpoint


def to_runs(costs: ChainCosts, plan: ChainPlan) -> list[int]:
    """Write the runs down, also those that nobody reads.

    Re-runs across blocks stand before the backward segment that follows them.
    """
    writer = _Writer(costs)
    writer.write(plan, True)
    return list(chain.from_iterable(writer.segments))


class _Writer:
    def __init__(self, costs: ChainCosts) -> None:
        self.costs = costs
        self.blocks = costs.chain.blocks
        self.segments: list[list[int]] = [[] for _ in range(2 * costs.n)]
        self.pending: list[int] = []

    def write(self, plan: ChainPlan, first: bool) -> None:
        """Write a plan; an explicit stack, since long chains nest deeply."""
        stack: list[Callable[[], None] | tuple[ChainPlan, bool]] = [(plan, first)]
        while stack:
            item = stack.pop()
            if not isinstance(item, tuple):
                item()
                continue
            stack.extend(reversed(self._expand(*item)))

    def _expand(
        self, plan: ChainPlan, first: bool
    ) -> list[Callable[[], None] | tuple[ChainPlan, bool]]:
        if isinstance(plan, Checkpoint):
            for b in range(plan.i, plan.k):
                self._forward(b, self.costs.advance(plan.i, b, first=False).operations, first)
            return [(plan.later, first), (plan.again, False)]
        if isinstance(plan, Inner):
            start = self.blocks[plan.i].start
            self._forward(plan.i, tuple(start + p for p in plan.option.again), first)
            return [(plan.rest, first), lambda: self._backward(plan.i, plan.option)]
        self._forward(plan.i, (), first)
        self._backward(plan.i, plan.option)
        return []

    def _forward(self, b: int, again: tuple[int, ...], first: bool) -> None:
        if first:
            self.segments[b].extend(range(self.blocks[b].start, self.blocks[b].stop))
        else:
            self.pending.extend(again)

    def _backward(self, b: int, option: Option) -> None:
        segment = self.segments[2 * self.costs.n - 1 - b]
        segment.extend(self.pending)
        self.pending.clear()
        start = self.blocks[b].start
        for t, stage in zip(self.blocks[b].backward, option.stages, strict=True):
            if stage:
                segment.extend([start + p for p in stage])
            segment.append(t)
