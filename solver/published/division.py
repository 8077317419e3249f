"""The division of a forward graph into independent segments.

Source: Feng & Huang 2021 (see `ogc`). An *independent segment* [s, t] is a set of vertices inside,
on paths from s to t, which no edge links to the outside but through s and t. It is divided
- *linear*: at its splitting vertices, which no edge passes by;
- *branched*: into the parts that fall apart without s and t;
- else: into its largest independent segments, chosen greedily by their edges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Links = dict[int, list[int]]


@dataclass(frozen=True, slots=True)
class DivisionSegment:
    """An independent segment; `direct` tells whether the edge source → target belongs to it."""

    source: int
    target: int
    inside: tuple[int, ...]
    direct: bool


class Dag:
    """Vertices 0 … n-1 in topological order; 0 is the only source, n-1 the only target."""

    def __init__(self, successors: Sequence[Sequence[int]]) -> None:
        self.successors = [sorted(set(targets)) for targets in successors]

    def whole(self) -> DivisionSegment:
        last = len(self.successors) - 1
        return DivisionSegment(0, last, tuple(range(1, last)), last in self.successors[0])

    def divide(self, segment: DivisionSegment) -> tuple[DivisionSegment, ...]:
        """Divide a segment that has vertices inside; each part has fewer edges.

        Linear ones stand in a row from its source to its target, others in none.
        """
        row = self._splitting(segment)
        if len(row) > 2:
            return self._row(segment, row)
        edges = self.edges(segment)
        inside = set(segment.inside)
        links = [(a, b) for a, b in edges if a in inside and b in inside]
        groups = components(segment.inside, links)
        if len(groups) > 1 or segment.direct:
            source, target = segment.source, segment.target
            direct = [DivisionSegment(source, target, (), True)] * segment.direct
            return (*direct, *(DivisionSegment(source, target, group, False) for group in groups))
        return self._largest(segment, edges)

    def shatter(self, segment: DivisionSegment) -> tuple[DivisionSegment, ...]:
        return tuple(DivisionSegment(a, b, (), True) for a, b in self.edges(segment))

    def edges(self, segment: DivisionSegment) -> list[tuple[int, int]]:
        """Return the edges that belong to a segment."""
        to = {*segment.inside, segment.target}
        from_source = {*segment.inside, segment.target} if segment.direct else {*segment.inside}
        edges = [(segment.source, b) for b in self.successors[segment.source] if b in from_source]
        return edges + [(a, b) for a in segment.inside for b in self.successors[a] if b in to]

    def _splitting(self, segment: DivisionSegment) -> list[int]:
        """Return the vertices that no edge passes by, the ends among them."""
        line = [segment.source, *segment.inside, segment.target]
        farthest = {v: v for v in line}
        for a, b in self.edges(segment):
            farthest[a] = max(farthest[a], b)
        row, reach = [], segment.source
        for v in line:
            if reach <= v:
                row.append(v)
            reach = max(reach, farthest[v])
        return row

    def _row(self, segment: DivisionSegment, row: list[int]) -> tuple[DivisionSegment, ...]:
        parts, inside = [], segment.inside
        for a, b in pairwise(row):
            between = inside[bisect_right(inside, a) : bisect_left(inside, b)]
            parts.append(DivisionSegment(a, b, between, b in self.successors[a]))
        return tuple(parts)

    def _largest(
        self, segment: DivisionSegment, edges: list[tuple[int, int]]
    ) -> tuple[DivisionSegment, ...]:
        """Return independent segments that share no edge and have all, the largest first."""
        pairs = separations((segment.source, *segment.inside, segment.target), edges)
        within = [
            DivisionSegment(a, b, inside, b in self.successors[a])
            for (a, b), inside in pairs.items()
        ]
        found = [(part, self.edges(part)) for part in within]
        found.sort(key=lambda counted: (-len(counted[1]), counted[0].source, counted[0].target))
        left = dict.fromkeys(edges)
        parts = []
        for part, own in found:
            if all(edge in left for edge in own):
                parts.append(part)
                for edge in own:
                    del left[edge]
        return (*parts, *(DivisionSegment(a, b, (), True) for a, b in left))


def components(vertices: Sequence[int], edges: Iterable[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Return the groups of vertices that edges link, in order of their first vertices."""
    links = _links(vertices, edges)
    left = set(vertices)
    groups = []
    for start in vertices:
        if start in left:
            left.discard(start)
            group = [start]
            for v in group:  # grows while it is walked
                new = [w for w in links[v] if w in left]
                left.difference_update(new)
                group += new
            groups.append(tuple(sorted(group)))
    return groups


def separations(
    line: Sequence[int], edges: Sequence[tuple[int, int]]
) -> dict[tuple[int, int], tuple[int, ...]]:
    """Return for each two vertices what falls off from both ends of the line without them.

    For each first vertex that is taken away, the second ones are the articulation points of the
    rest (Hopcroft & Tarjan, "Efficient algorithms for graph manipulation", 1973). The ends stay
    together through a link of their own.
    """
    links = _links(line, [*edges, (line[0], line[-1])])
    found: dict[tuple[int, int], set[int]] = {}
    for a in line:
        root = line[-1] if a != line[-1] else line[0]
        for b, below in _fallen(links, root, a):
            if line[0] not in below and {a, b} != {line[0], line[-1]}:
                found.setdefault((min(a, b), max(a, b)), set()).update(below)
    return {pair: tuple(sorted(inside)) for pair, inside in sorted(found.items())}


def _links(vertices: Sequence[int], edges: Iterable[tuple[int, int]]) -> Links:
    links: Links = {v: [] for v in vertices}
    for a, b in edges:
        links[a].append(b)
        links[b].append(a)
    return links


def _fallen(links: Links, root: int, without: int) -> list[tuple[int, list[int]]]:
    """Return pairs (b, vertices cut off from the root by b) of the graph `without` one vertex."""
    order, parent = _walk(links, root, without)
    number = {v: i for i, v in enumerate(order)}
    low = dict(number)
    size = dict.fromkeys(order, 1)
    fallen = []
    for v in reversed(order[1:]):
        up = parent[v]
        for w in links[v]:
            if w != without and w != up:
                low[v] = min(low[v], low[w] if parent.get(w) == v else number[w])
        size[up] += size[v]
        if low[v] >= number[up]:
            fallen.append((up, order[number[v] : number[v] + size[v]]))
    return fallen


def _walk(links: Links, root: int, without: int) -> tuple[list[int], dict[int, int]]:
    """Return the vertices in depth-first preorder, and their parents."""
    order: list[int] = []
    parent: dict[int, int] = {}
    seen = {without}
    stack = [(root, root)]
    while stack:
        v, up = stack.pop()
        if v in seen:
            continue
        seen.add(v)
        order.append(v)
        if v != root:
            parent[v] = up
        stack.extend((w, v) for w in reversed(links[v]) if w not in seen)
    return order, parent
