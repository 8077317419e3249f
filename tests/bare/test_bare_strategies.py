"""Properties of every strategy on bare graphs: DESIGN, end of section 8."""

from __future__ import annotations

import pytest
from bare_graphs import bare_graphs, largest_node_bytes, scaled, training_graphs
from hypothesis import given, settings
from hypothesis import strategies as st

from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.replay import replay
from remat_gen.solver.solve import STRATEGIES, InfeasibleError, Solution, Solver, Status

GRAPHS = bare_graphs() | bare_graphs(layered=True) | training_graphs()
MONOTONE = ("auto", "rockmate")


def _solve(solver: Solver, budget: int) -> Solution | None:
    try:
        return solver.solve(budget)
    except InfeasibleError as error:
        assert error.smallest_bytes > budget
        assert 0 <= error.operation_index < len(solver.problem.operations)
        return None


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(graph=GRAPHS, share=st.integers(10, 110))
@settings(max_examples=25, deadline=None)
def test_within_the_budget_or_infeasible(strategy: str, graph: BareGraph, share: int) -> None:
    solver = Solver(graph, strategy)
    budget = solver.plain.peak_bytes * share // 100
    found = _solve(solver, budget)
    if found is None:
        return
    judged = replay(solver.problem, found.schedule)
    assert judged == found.replay
    assert judged.peak_bytes <= budget
    once = sum(node.time for node in graph.nodes)
    assert once <= found.lower_bound_us <= judged.time_us
    assert (found.status is Status.OPTIMAL) == (judged.time_us == found.lower_bound_us)


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(graph=GRAPHS)
@settings(max_examples=10, deadline=None)
def test_the_smallest_budget_is_feasible(strategy: str, graph: BareGraph) -> None:
    solver = Solver(graph, strategy)
    smallest = solver.smallest_budget()
    assert smallest.nbytes >= largest_node_bytes(graph)
    found = solver.solve(smallest.nbytes)
    assert found.replay.peak_bytes <= smallest.nbytes


def test_the_smallest_budget_is_feasible_where_a_search_missed_it() -> None:
    """checkmate-lp found 8 bytes while it was asked for 10, and at 8 it rounded to nothing."""
    sizes, reads = (4, 2, 5, 1, 1, 1, 1, 1), ((), (0,), (1,), (2,), (3, 0), (4, 2), (5, 1), (6, 0))
    nodes = [Node(f"n{i}", 1.0, sizes[i], i > 3, reads[i]) for i in range(8)]
    solver = Solver(BareGraph(tuple(nodes), frozenset()), "checkmate-lp")
    smallest = solver.smallest_budget().nbytes
    assert solver.solve(smallest).replay.peak_bytes <= smallest


@pytest.mark.parametrize("strategy", MONOTONE)
@given(graph=GRAPHS)
@settings(max_examples=25, deadline=None)
def test_more_memory_never_costs_time(strategy: str, graph: BareGraph) -> None:
    solver = Solver(graph, strategy)
    plain, least = solver.plain.peak_bytes, largest_node_bytes(graph)
    times = []
    for budget in range(max(least - 1, 0), plain + 1):
        found = _solve(solver, budget)
        times.append(found.replay.time_us if found else float("inf"))
    assert times == sorted(times, reverse=True)
    assert least == 0 or times[0] == float("inf")
    assert solver.solve(plain).replay.reruns == ()


@pytest.mark.parametrize("strategy", MONOTONE)
@given(graph=GRAPHS, factor=st.integers(2, 1000), share=st.integers(30, 100))
@settings(max_examples=20, deadline=None)
def test_the_scale_of_bytes_changes_nothing(
    strategy: str, graph: BareGraph, factor: int, share: int
) -> None:
    solvers = Solver(graph, strategy), Solver(scaled(graph, factor), strategy)
    budget = solvers[0].plain.peak_bytes * share // 100
    one, two = _solve(solvers[0], budget), _solve(solvers[1], budget * factor)
    assert (one and one.schedule) == (two and two.schedule)


@given(graph=GRAPHS, share=st.integers(40, 100))
@settings(max_examples=25, deadline=None)
def test_auto_is_never_worse(graph: BareGraph, share: int) -> None:
    solvers = {strategy: Solver(graph, strategy) for strategy in STRATEGIES}
    budget = solvers["none"].plain.peak_bytes * share // 100
    found = {strategy: _solve(solver, budget) for strategy, solver in solvers.items()}
    best = found.pop("auto")
    for other in found.values():
        if other is not None:
            assert best is not None
            assert best.replay.time_us <= other.replay.time_us


@given(graph=GRAPHS, share=st.integers(40, 100))
@settings(max_examples=15, deadline=None)
def test_a_solver_used_again_says_the_same(graph: BareGraph, share: int) -> None:
    used, budget = Solver(graph, "auto"), Solver(graph, "none").plain.peak_bytes * share // 100
    for other in (30, 100, 60):
        _solve(used, used.plain.peak_bytes * other // 100)
    assert _solve(used, budget) == _solve(Solver(graph, "auto"), budget)
