"""Cut the forward operations into a chain of blocks with small frontiers.

Layers, where they are known, are the first pieces, so that identical layers are cut identically and
are solved once. A piece over a limit is cut where the frontiers sum to the fewest bytes; small
neighbours are merged. Limits are local (one more layer changes no other block): the operations, and
the bytes of parameter gradients that a block holds until its backward returns, where eager lets go
of one after the other. What is merged may hold less: at small budgets they would be all there is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import accumulate, groupby, pairwise, takewhile

from remat_gen.solver.blocks.block_chain import (
    Chain,
    build_chain,
    gradient_bytes,
    needed_values,
    pinned_values,
)
from remat_gen.solver.law.problem import Held, Problem

BLOCK_LIMIT = 30  # forward operations: about what z3 solves in a second
LONE_LIMIT = 2  # operations between layers that are no block of their own
SMALL_LAYER = 5  # operations of layers that are put together; larger ones are blocks of their own
HELD_SHARE = 1 / 2  # of what its backward needs a block may hold in gradients
MERGED_SHARE = 1 / 2  # of what its largest operation takes merged pieces may hold in gradients


class _Limits:
    """What a block may be: so many operations, and so many bytes of gradients but the largest."""

    def __init__(self, problem: Problem, operations: int) -> None:
        self.operations = operations
        self.gradients = gradient_bytes(problem)
        needed = needed_values(problem)
        self.needed = [
            sum(problem.values[v].nbytes for v in operation.outputs if v in needed)
            for operation in problem.operations[: problem.forward_count]
        ]
        self.room = [
            sum(problem.values[v].nbytes for v in {*operation.inputs, *operation.outputs})
            for operation in problem.operations[: problem.forward_count]
        ]

    def starts(self, first: int, stop: int) -> Iterator[int]:
        """Yield where a block that ends before `stop` may start, from its last operation down."""
        held = largest = needed = 0
        for start in range(stop - 1, max(first, stop - self.operations) - 1, -1):
            held += self.gradients[start]
            largest = max(largest, self.gradients[start])
            needed += self.needed[start]
            if held - largest <= HELD_SHARE * needed:
                yield start

    def allow(self, start: int, stop: int) -> bool:
        """Tell whether a range of operations may be a block."""
        return start in self.starts(start, stop)

    def allow_merged(self, start: int, stop: int) -> bool:
        """Tell whether neighbouring pieces may be one block."""
        gradients = self.gradients[start:stop]
        held = sum(gradients) - max(gradients)
        return self.allow(start, stop) and held <= MERGED_SHARE * max(self.room[start:stop])


def partition(problem: Problem, limit: int = BLOCK_LIMIT) -> Chain:
    """Return the chain of blocks of at most `limit` operations (an idle prefix is one block)."""
    weights = _crossing_bytes(problem)
    idle = _idle_prefix(problem)
    limits = _Limits(problem, limit)
    pieces = [p for piece in _layers(problem, idle) for p in _cut(piece, weights, limits)]
    merged = _merge(problem, _fold(problem, pieces, limits), limits)
    cuts = ([idle] if idle else []) + [start for start, _ in merged]
    total = problem.forward_count
    return build_chain(problem, tuple(c for c in sorted(set(cuts)) if 0 < c < total))


def _crossing_bytes(problem: Problem) -> list[int]:
    """Return for each position between forward operations the bytes that cross it."""
    total = problem.forward_count
    last = {v: p for p in range(total) for v in problem.operations[p].inputs}
    pinned = pinned_values(problem)
    change = [0] * (total + 2)
    for p in range(total):
        for v in problem.operations[p].outputs:
            if problem.values[v].held is Held.FREE and v not in pinned:
                change[p + 1] += problem.values[v].nbytes
                change[max(last.get(v, p), p) + 1] -= problem.values[v].nbytes
    return list(accumulate(change))


def _idle_prefix(problem: Problem) -> int:
    """Return how many leading operations make nothing that backward may need (frozen layers)."""
    needed = needed_values(problem)
    forward = problem.operations[: problem.forward_count]
    return len(list(takewhile(lambda o: needed.isdisjoint(o.outputs), forward)))


def _layers(problem: Problem, start: int) -> list[tuple[int, int]]:
    """Return the ranges of operations of one layer (or of none), in order."""
    positions = range(start, problem.forward_count)
    groups = groupby(positions, key=lambda p: problem.operations[p].layer)
    ranges = [list(group) for _, group in groups]
    return [(r[0], r[-1] + 1) for r in ranges]


def _cut(piece: tuple[int, int], weights: list[int], limits: _Limits) -> list[tuple[int, int]]:
    """Cut a range into allowed parts: least frontier bytes, then fewest, then even."""
    start, stop = piece
    best: dict[int, tuple[int, int, int, int]] = {start: (0, 0, 0, start)}
    for c in range(start + 1, stop + 1):
        here = weights[c] if c < stop else 0
        choices = []
        for a in limits.starts(start, c):
            bytes_sum, count, squares, _ = best[a]
            choices.append((bytes_sum + here, count + 1, squares + (c - a) ** 2, a))
        best[c] = min(choices)
    parts = []
    while stop > start:
        parts.append((best[stop][3], stop))
        stop = best[stop][3]
    return parts[::-1]


def _fold(
    problem: Problem, pieces: list[tuple[int, int]], limits: _Limits
) -> list[tuple[int, int]]:
    """Put a pooling or a concatenation between layers into the layer behind, if no other is equal.

    On its own it would be a block, which costs time at each step and has nothing to choose.
    """
    kinds = [tuple(o.signature for o in problem.operations[a:b]) for a, b in pieces]
    count = Counter(kinds)
    folded: list[tuple[int, int]] = []
    for kind, (start, stop) in zip(kinds, pieces, strict=True):
        layer = problem.operations[start].layer
        before, end = folded[-1] if folded else (start, start)
        lone = 0 < end - before <= LONE_LIMIT and not problem.operations[before].layer
        if lone and layer and count[kind] == 1 and limits.allow(before, stop):
            folded[-1] = (before, stop)
        else:
            folded.append((start, stop))
    return folded


def _merge(
    problem: Problem, pieces: list[tuple[int, int]], limits: _Limits
) -> list[tuple[int, int]]:
    """Merge small neighbours; layers merge with small layers only, so that their rhythm stays."""
    merged = pieces[:1]
    for before, piece in pairwise(pieces):
        start = merged[-1][0]
        if _fit(problem, before, piece) and limits.allow_merged(start, piece[1]):
            merged[-1] = (start, piece[1])
        else:
            merged.append(piece)
    return merged


def _fit(problem: Problem, before: tuple[int, int], after: tuple[int, int]) -> bool:
    """Tell whether pieces go together: parts of one layer, small layers, or both in no layer.

    A layer of a single operation has nothing to choose: it joins what is before it.
    """
    one, other = problem.operations[before[1] - 1].layer, problem.operations[after[0]].layer
    if one == other or not one or not other:
        return one == other
    return after[1] - after[0] == 1 or max(b - a for a, b in (before, after)) <= SMALL_LAYER
