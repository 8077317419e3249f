"""What falls off a graph without two of its vertices (undirected; for independent segments)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

Links = dict[int, list[int]]


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
