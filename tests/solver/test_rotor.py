"""Rotor's recurrence on chains: the optimum where that is known, and never better than it."""

from __future__ import annotations

import pytest
from exact_oracle import bare, least_time
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.solve import InfeasibleError, Solver

Layer = tuple[int, int, int, int]  # time and bytes of forward, time and bytes of backward


def _chain(layers: list[Layer]) -> BareGraph:
    """Return a chain in which a backward node reads the gradient and its layer's input."""
    nodes = [Node("f0", 1.0, layers[0][1], False, ())]
    for i, (time, nbytes, _, _) in enumerate(layers, 1):
        nodes.append(Node(f"f{i}", float(time), nbytes, False, (i - 1,)))
    for i, (_, _, time, nbytes) in reversed(list(enumerate(layers))):
        nodes.append(Node(f"b{i}", float(time), nbytes, True, (len(nodes) - 1, i)))
    return BareGraph(tuple(nodes))


@pytest.mark.parametrize(
    ("length", "budget", "time_us"),
    [(8, 3, 45), (8, 4, 26), (8, 5, 22), (8, 7, 20), (16, 4, 67), (16, 5, 53), (16, 7, 44)],
)
def test_uniform_chains_take_the_least_time(length: int, budget: int, time_us: float) -> None:
    """Revolve's optima (Griewank and Walther 2000), for chains of that many steps."""
    assert Solver(_chain([(1, 1, 1, 1)] * length), "rotor").solve(budget).replay.time_us == time_us


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(1, 5), st.integers(1, 4)),
        min_size=2,
        max_size=3,
    ),
    st.integers(40, 100),
)
@settings(max_examples=15, deadline=None)
def test_never_quicker_than_the_optimum(layers: list[Layer], share: int) -> None:
    graph = _chain(layers)
    solver = Solver(graph, "rotor")
    problem = bare([(n.time, n.nbytes, n.inputs) for n in graph.nodes])
    budget = solver.plain.peak_bytes * share // 100
    optimum = least_time(problem, budget)
    try:
        time_us = solver.solve(budget).replay.time_us
    except InfeasibleError:
        return
    assert optimum is not None and optimum <= time_us


def test_deep_chains_of_layers_that_differ() -> None:
    """A chain of 49 nodes, and what cutting it into blocks of up to 30 cannot do."""
    layers = [(1 + i * 7 % 10, 1 + i * 5 % 16, 2 + i * 3 % 18, 1 + i * 11 % 16) for i in range(24)]
    solver = Solver(_chain(layers), "rotor")
    assert solver.smallest_budget().nbytes < 0.3 * solver.plain.peak_bytes
    found = solver.solve(solver.plain.peak_bytes * 35 // 100)
    assert found.replay.time_us < 1.35 * solver.plain.time_us
