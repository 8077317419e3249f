"""The division of a forward graph into independent segments.

Source: Jianwei Feng and Dong Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation
Graphs", CVPR 2021 (arXiv:1808.00079). An *independent segment* [s, t] is a set of vertices inside,
on paths from s to t, which no edge links to the outside but through s and t. It is divided
- *linear*: at its splitting vertices, which no edge passes by;
- *branched*: into the parts that fall apart without s and t;
- else: into its largest independent segments, chosen greedily by their edges.
Checkpoints stand where parts meet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from remat_gen.solver.published.separation import components, separations


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
            return _branches(segment, groups)
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
        parts, start = [], 0
        for a, b in pairwise(row):
            stop = start
            while stop < len(segment.inside) and segment.inside[stop] < b:
                stop += 1
            inside = segment.inside[start:stop]
            start = stop + 1
            parts.append(DivisionSegment(a, b, inside, b in self.successors[a]))
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


def _branches(
    segment: DivisionSegment, groups: list[tuple[int, ...]]
) -> tuple[DivisionSegment, ...]:
    source, target = segment.source, segment.target
    direct = [DivisionSegment(source, target, (), True)] if segment.direct else []
    return (*direct, *(DivisionSegment(source, target, group, False) for group in groups))
