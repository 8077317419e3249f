"""Strategy `ogc`: optimal gradient checkpoints on arbitrary graphs.

Source: Jianwei Feng and Dong Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation
Graphs", CVPR 2021 (arXiv:1808.00079). The paper knows no budget: it takes the limit on what a
segment holds that minimises checkpoints plus limit. Here the quickest of all limits' schedules that
fits the budget is taken.

Vertices are forward operations rather than tensors: several outputs are one checkpoint. A vertex
holds, inside a segment, the outputs that backward reads; as a checkpoint, all that is read. A bare
graph without backward flags has no forward graph to divide: nothing is re-run there.

A segment whose vertices inside hold at most the limit runs forward again as a whole. A larger one
is divided, with checkpoints where its parts meet; in a row of parts, those between two checkpoints
may be run again together ("accessible"), and the least stored bytes are a shortest path.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from remat_gen.solver.law.problem import Problem
from remat_gen.solver.law.search_types import Effort, evenly
from remat_gen.solver.published.division import Dag, DivisionSegment
from remat_gen.solver.published.local_forwards import droppable_values, searching

LIMITS = {Effort.QUICK: 60, Effort.NORMAL: 250, Effort.THOROUGH: 2000}
"""Limits on a segment that are tried, evenly among all there are."""
ROW_LIMIT = 300  # vertices of a row whose spans are all taken as limits
DEPTH = 100  # levels of the tree; deeper segments keep all or nothing


def checkpoint_choices(problem: Problem, count: int) -> list[frozenset[int]]:
    """Return the values that are not retained, for at most `count` limits on a segment."""
    dag, outputs = _graph_of(problem)
    weights = _weights(problem, outputs)
    root = division_tree(dag, weights)
    tried = evenly(limits(root), count)
    found = dict.fromkeys(cheapest(root, weights, limit) for limit in tried)
    every = frozenset(v for made in outputs for v in made)
    return [every.difference(*(outputs[vertex] for vertex in chosen)) for chosen in found]


search = searching(lambda problem, effort: checkpoint_choices(problem, LIMITS[effort]))


def _graph_of(problem: Problem) -> tuple[Dag, list[tuple[int, ...]]]:
    """Return the graph of forward, and by vertex the droppable values that it makes.

    Operations with such values are vertices 1 …; 0 and the last are the ends.
    """
    droppable = droppable_values(problem)
    outputs: list[tuple[int, ...]] = [()]
    vertex_of: dict[int, int] = {}
    successors: list[list[int]] = [[]]
    for operation in problem.operations[: problem.forward_count]:
        made = tuple(v for v in operation.outputs if v in droppable)
        if not made:
            continue
        sources = [vertex_of[v] for v in operation.inputs if v in vertex_of] or [0]
        for source in sources:
            successors[source].append(len(outputs))
        vertex_of.update(dict.fromkeys(made, len(outputs)))
        outputs.append(made)
        successors.append([])
    for targets in successors:
        if not targets:
            targets.append(len(outputs))
    outputs.append(())
    return Dag([*successors, []]), outputs


def _weights(problem: Problem, outputs: list[tuple[int, ...]]) -> Weights:
    backward = problem.operations[problem.forward_count :]
    read = {v for operation in backward for v in operation.inputs}
    sizes = [{v: problem.values[v].nbytes for v in made} for made in outputs]
    held = [sum(nbytes for v, nbytes in made.items() if v in read) for made in sizes]
    return Weights([sum(made.values()) for made in sizes], held)


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
