"""Bare graphs for tests: random ones, and DESIGN's with known optima."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st

from remat_gen.solver.law.bare_graph import BareGraph, Node


def uniform_chain(length: int) -> BareGraph:
    """Return the unit-cost chain in which backward i needs forward i and backward i + 1."""
    nodes: list[Node] = []
    for i in range(length + 1):
        nodes.append(Node(f"f{i}", 1.0, 1, False, (i - 1,) if i else ()))
    for i in reversed(range(length)):
        nodes.append(Node(f"b{i}", 1.0, 1, True, (len(nodes) - 1, i)))
    return BareGraph(tuple(nodes))


def scaled(graph: BareGraph, factor: int) -> BareGraph:
    """Return the graph with all bytes multiplied."""
    nodes = tuple(replace(node, nbytes=node.nbytes * factor) for node in graph.nodes)
    return replace(graph, nodes=nodes)


def largest_node_bytes(graph: BareGraph) -> int:
    """Return the most bytes of one node's inputs and output together."""
    nodes = graph.nodes
    return max(node.nbytes + sum(nodes[i].nbytes for i in node.inputs) for node in nodes)


@st.composite
def bare_graphs(draw: st.DrawFn, max_nodes: int = 8, *, layered: bool = False) -> BareGraph:
    """Draw a graph; flags are anything, or forward first and backward after it if `layered`."""
    count = draw(st.integers(1, max_nodes))
    half = draw(st.integers(0, count))
    nodes: list[Node] = []
    for i in range(count):
        inputs = draw(st.lists(st.integers(0, i - 1), max_size=3, unique=True)) if i else []
        backward = i >= half if layered else draw(st.booleans())
        time = float(draw(st.integers(0, 9)))
        nodes.append(Node(f"n{i}", time, draw(st.integers(0, 8)), backward, tuple(inputs)))
    outputs = draw(st.sets(st.integers(0, count - 1), max_size=2))
    return BareGraph(tuple(nodes), frozenset(outputs))


@st.composite
def training_graphs(draw: st.DrawFn, max_forward: int = 4) -> BareGraph:
    """Draw a small step: forward nodes, then a backward node for each, which may read several."""
    count = draw(st.integers(2, max_forward))
    nodes: list[Node] = []
    for i in range(count):
        skip = draw(st.lists(st.integers(0, i - 1), max_size=1)) if i else []
        inputs = tuple(dict.fromkeys([*([i - 1] if i else []), *skip]))
        nodes.append(_drawn(draw, f"f{i}", backward=False, inputs=inputs))
    for i in reversed(range(count)):
        more = draw(st.lists(st.integers(0, count - 1), max_size=1))
        gradient = [len(nodes) - 1] if len(nodes) > count else []
        inputs = tuple(dict.fromkeys([*gradient, i, *more]))
        nodes.append(_drawn(draw, f"b{i}", backward=True, inputs=inputs))
    return BareGraph(tuple(nodes))


def _drawn(draw: st.DrawFn, name: str, *, backward: bool, inputs: tuple[int, ...]) -> Node:
    return Node(name, float(draw(st.integers(1, 9))), draw(st.integers(1, 8)), backward, inputs)
