"""Strategy `ogc`: its promises, its division of known graphs, its optimum against enumeration."""

from __future__ import annotations

from itertools import combinations, pairwise

from brute_force import least_time
from hypothesis import given, settings
from hypothesis import strategies as st
from solver_problems import gpt_like, problems
from strategy_problems import check, graph, graphs, least_time_anyhow, plain_peak, time_us

from remat_gen.solver.contest.entrants import searched
from remat_gen.solver.law.problem import Problem
from remat_gen.solver.published import ogc
from remat_gen.solver.published.division import Dag, DivisionSegment
from remat_gen.solver.published.ogc import Weights, cheapest, division_tree, limits


@given(problems(), st.floats(0, 1.1))
@settings(max_examples=80, deadline=None)
def test_promises_on_training_problems(problem: Problem, share: float) -> None:
    budget = int(plain_peak(problem) * share)
    found = check(ogc.search, problem, budget)
    assert found.runs is not None or share < 1


@given(graphs(flagged=True), st.floats(0, 1.1))
@settings(max_examples=80, deadline=None)
def test_promises_on_bare_graphs(problem: Problem, share: float) -> None:
    check(ogc.search, problem, int(plain_peak(problem) * share))


@given(problems(max_forward=4, hard=False), st.floats(0.3, 1))
@settings(max_examples=40, deadline=None)
def test_never_below_the_optimum(problem: Problem, share: float) -> None:
    budget = int(plain_peak(problem) * share)
    found, optimum = (
        time_us(problem, check(ogc.search, problem, budget)),
        least_time(problem, budget),
    )
    assert found is None or (optimum is not None and found >= optimum)


@given(graphs(5, flagged=True), st.floats(0.3, 1))
@settings(max_examples=40, deadline=None)
def test_never_below_the_optimum_of_bare_graphs(problem: Problem, share: float) -> None:
    budget = int(plain_peak(problem) * share)
    found = time_us(problem, check(ogc.search, problem, budget))
    optimum = least_time_anyhow(problem, budget)
    assert found is None or (optimum is not None and found >= optimum)


def test_a_diamond_is_a_row_around_two_branches() -> None:
    dag = Dag([[1], [2, 3], [4], [4], [5], []])
    row = dag.divide(dag.whole())
    inside = [(part.source, part.target, part.inside) for part in row]
    assert inside == [(0, 1, ()), (1, 4, (2, 3)), (4, 5, ())]
    assert [part.inside for part in dag.divide(row[1])] == [(2,), (3,)]


def test_an_indivisible_segment_falls_into_the_largest_independent_ones() -> None:
    """A bridge between two paths; on one of them stand two vertices in a row."""
    dag = Dag([[1, 2], [3, 5], [5], [4], [6], [6], []])
    parts = dag.divide(dag.whole())
    assert DivisionSegment(1, 6, (3, 4), False) in parts
    edges = [edge for part in parts for edge in dag.edges(part)]
    assert sorted(edges) == [(a, b) for a in range(7) for b in dag.successors[a]]


@st.composite
def _dags(draw: st.DrawFn) -> Dag:
    n = draw(st.integers(2, 9))
    edges = {(a, b) for b in range(1, n) for a in draw(st.sets(st.integers(0, b - 1), min_size=1))}
    edges |= {(a, n - 1) for a in range(n - 1) if not any(x == a for x, _ in edges)}
    return Dag([[b for a, b in sorted(edges) if a == v] for v in range(n)])


@given(_dags())
def test_parts_are_independent_and_have_every_edge_once(dag: Dag) -> None:
    stack = [dag.whole()]
    while stack:
        segment = stack.pop()
        outside = set(range(len(dag.successors))) - {
            *segment.inside,
            segment.source,
            segment.target,
        }
        for a, targets in enumerate(dag.successors):
            for b in targets:
                assert not ({a, b} & outside and {a, b} & set(segment.inside))
        if segment.inside:
            parts = dag.divide(segment)
            edges = sorted(edge for part in parts for edge in dag.edges(part))
            assert edges == sorted(dag.edges(segment))
            assert all(len(dag.edges(part)) < len(edges) for part in parts)
            stack += parts


@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.data())
def test_checkpoints_of_a_row_are_optimal(sizes: list[int], data: st.DataObject) -> None:
    """Against all sets of checkpoints on a linear graph."""
    n = len(sizes)
    dag = Dag([[i + 1] for i in range(n + 1)] + [[]])
    weights = Weights([0, *sizes, 0], [0, *sizes, 0])
    root = division_tree(dag, weights)
    limit = data.draw(st.sampled_from(limits(root)))

    def largest(kept: tuple[int, ...]) -> int:
        ends = [0, *kept, n + 1]
        return max(sum(weights.held[a + 1 : b]) for a, b in pairwise(ends))

    sets = [kept for k in range(n + 1) for kept in combinations(range(1, n + 1), k)]
    least = min(sum(weights.stored[v] for v in kept) for kept in sets if largest(kept) <= limit)
    found = cheapest(root, weights, limit)
    assert sum(weights.stored[v] for v in found) == least


def test_without_flags_nothing_is_run_again() -> None:
    problem = graph([[], [0], [1], [2, 0]], [1, 1, 1, 1])
    peak = plain_peak(problem)
    assert searched(ogc.search, problem, peak).runs == (0, 1, 2, 3)
    assert searched(ogc.search, problem, peak - 1).runs is None


def test_more_memory_is_never_slower_on_a_gpt() -> None:
    problem = gpt_like(2)
    peak = plain_peak(problem)
    times = [
        time_us(problem, searched(ogc.search, problem, peak * share // 100))
        for share in (60, 80, 100)
    ]
    assert None not in times
    assert times[0] > times[1] > times[2] == sum(o.time_us for o in problem.operations)


def test_deep_nesting_is_no_recursion_without_end() -> None:
    """A ladder of skips within skips, deeper than Python's stack allows calls."""
    depth = 600
    down = [[i - 1] if i else [] for i in range(depth + 1)]
    up = [[depth + k, depth - 1 - k] for k in range(depth)]
    problem = graph([*down, *up, [2 * depth, 0]], [1] * (2 * depth + 2), forward=2 * depth + 1)
    assert searched(ogc.search, problem, plain_peak(problem)).runs is not None
    assert ogc.checkpoint_choices(problem, 5)
