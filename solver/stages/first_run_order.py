"""Which operation's first run comes before which, in every schedule that the law allows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from remat_gen.solver.states.bit_graph import BitGraph
from remat_gen.solver.states.bit_sets import members, transposed


@dataclass(frozen=True, slots=True)
class FirstRuns:
    """For each operation those that surely run first before it, and those surely after it.

    `held` are the values that cannot be freed before its first run, once they are made. `rank` is
    its place in one order that agrees with all this.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    held: tuple[int, ...]
    rank: tuple[int, ...]

    def in_order(self, sequence: Sequence[int]) -> FirstRuns:
        """Return the same with all first runs in one sequence, which must agree with this order."""
        before, after, rank = [0] * len(sequence), [0] * len(sequence), [0] * len(sequence)
        earlier, later = 0, (1 << len(sequence)) - 1
        for place, p in enumerate(sequence):
            before[p], rank[p] = earlier, place
            earlier |= 1 << p
            later &= ~(1 << p)
            after[p] = later
        return FirstRuns(tuple(before), tuple(after), self.held, tuple(rank))


def first_runs(graph: BitGraph, *, in_blocks: bool = False) -> FirstRuns:
    """Return the order that dependencies, and in a training problem the forward pass, impose.

    With `in_blocks` it is that of schedules whose backward operations run block by block.
    """
    before = [0] * graph.count
    ordered = 0
    for p in range(graph.count):
        if graph.forward >> p & 1:
            before[p] = (1 << p) - 1
        else:
            before[p] = graph.forward | (graph.earlier_segments(p) if in_blocks else 0)
            for v in members(graph.reads[p]):
                if (u := graph.producer[v]) >= 0:
                    before[p] |= before[u] | 1 << u
        if graph.ordered >> p & 1:
            for u in members(ordered):
                before[p] |= before[u] | 1 << u
            ordered |= 1 << p
    held = [graph.step_held | (graph.held_at(p) if in_blocks else 0) for p in range(graph.count)]
    after, rank = transposed(before), range(graph.count)
    return FirstRuns(tuple(before), tuple(after), tuple(held), tuple(rank))


def heaviest_chain(order: FirstRuns, weights: Sequence[float]) -> int:
    """Return the set of operations, pairwise comparable, of the greatest total weight.

    Weights are positive: the best chain before an operation ends with one of its last predecessors.
    """
    best, previous = [0.0] * len(weights), [-1] * len(weights)
    for p in sorted(range(len(weights)), key=order.rank.__getitem__):
        last = max(_last(order, order.before[p]), key=lambda u: best[u], default=-1)
        best[p] = weights[p] + (best[last] if last >= 0 else 0.0)
        previous[p] = last
    p = max(range(len(weights)), key=lambda u: best[u])
    chain = 0
    while p >= 0:
        chain |= 1 << p
        p = previous[p]
    return chain


def _last(order: FirstRuns, operations: int) -> list[int]:
    """Return operations of a set, among them all that run before no other one of it."""
    found = []
    while operations:
        u = operations.bit_length() - 1
        found.append(u)
        operations &= ~(order.before[u] | 1 << u)
    return found
