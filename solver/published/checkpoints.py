"""The fewest bytes of checkpoints for each limit on the bytes inside a segment.

Source: Feng & Huang 2021 (see `ogc`). A segment whose vertices inside hold at most the limit runs
forward again as a whole. A larger one is divided, with checkpoints where its parts meet; in a row
of parts, those between two checkpoints may be run again together ("accessible"), and the least
stored bytes are a shortest path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from remat_gen.solver.published.division import Dag, DivisionSegment

ROW_LIMIT = 300  # vertices of a row whose spans are all taken as limits
DEPTH = 100  # levels of the tree; deeper segments keep all or nothing


@dataclass(frozen=True, slots=True)
class Weights:
    """Bytes by vertex: `stored` as a checkpoint, `held` while its segment runs again."""

    stored: Sequence[int]
    held: Sequence[int]


@dataclass(frozen=True, slots=True)
class DivisionNode:
    """A segment with the bytes held inside, and its parts.

    The parts of a linear division meet at `row` (the ends among them); `upto[i]` is held up to its
    vertex i, `before[i]` before it.
    """

    segment: DivisionSegment
    held: int
    children: tuple[DivisionNode, ...] = ()
    row: tuple[int, ...] = ()
    before: tuple[int, ...] = ()
    upto: tuple[int, ...] = ()

    def span(self, i: int, j: int) -> int:
        """Return what is held strictly between vertices i < j of the row."""
        return self.before[j] - self.upto[i]


def division_tree(dag: Dag, weights: Weights) -> DivisionNode:
    """Divide down to single edges; the tree is as deep as the graph is nested, up to a limit."""
    return _node(dag, weights, dag.whole(), 0)


def limits(root: DivisionNode) -> list[int]:
    """Return the bytes that a segment between checkpoints may hold, increasing."""
    return sorted(set(_held_by_spans(root)))


def cheapest(node: DivisionNode, weights: Weights, limit: int) -> frozenset[int]:
    """Return the checkpoints of least bytes with which no segment holds more than `limit`."""
    if node.held <= limit or not node.children:
        return frozenset()
    inner = [cheapest(child, weights, limit) for child in node.children]
    if node.row:
        return _cheapest_in_row(node, weights, limit, inner)
    ends = {v for child in node.children for v in (child.segment.source, child.segment.target)}
    return frozenset(ends - {node.segment.source, node.segment.target}).union(*inner)


def _node(dag: Dag, weights: Weights, segment: DivisionSegment, depth: int) -> DivisionNode:
    held = sum(weights.held[v] for v in segment.inside)
    if not segment.inside:
        return DivisionNode(segment, held)
    parts = dag.divide(segment) if depth < DEPTH else dag.shatter(segment)
    children = tuple(_node(dag, weights, part, depth + 1) for part in parts)
    if any(part.target != then.source for part, then in pairwise(parts)):
        return DivisionNode(segment, held, children)
    row = [segment.source]
    before, upto = [0], [weights.held[segment.source]]
    for child in children:
        row.append(child.segment.target)
        before.append(upto[-1] + child.held)
        upto.append(before[-1] + weights.held[row[-1]])
    return DivisionNode(segment, held, children, tuple(row), tuple(before), tuple(upto))


def _held_by_spans(node: DivisionNode) -> Iterator[int]:
    yield node.held
    step = 1 + len(node.row) // ROW_LIMIT
    for i in range(0, len(node.row), step):
        yield from (node.span(i, j) for j in range(i + 1, len(node.row), step))
    for child in node.children:
        yield from _held_by_spans(child)


def _cheapest_in_row(
    node: DivisionNode, weights: Weights, limit: int, inner: list[frozenset[int]]
) -> frozenset[int]:
    """Find the shortest path along the row: each step skips what may run again together."""
    last = len(node.row) - 1
    best = [(0, 0, 0)]  # stored bytes, checkpoints, predecessor
    for j in range(1, last + 1):
        here = weights.stored[node.row[j]] if j < last else 0
        stored, count, _ = best[j - 1]
        inside = sum(weights.stored[v] for v in inner[j - 1])
        steps = [(stored + here + inside, count + 1, j - 1)]
        for i in range(j - 2, -1, -1):
            if node.span(i, j) > limit:
                break
            steps.append((best[i][0] + here, best[i][1] + 1, i))
        best.append(min(steps))
    path = [last]
    while path[-1]:
        path.append(best[path[-1]][2])
    single = [inner[j - 1] for j, i in pairwise(path) if i == j - 1]
    return frozenset(node.row[i] for i in path[1:-1]).union(*single)
