"""A bare graph as a scheduling problem: which schedules are legal, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bare_graphs import bare_graphs, largest_node_bytes, uniform_chain
from hypothesis import given, settings

from remat_gen.solver.contest.subject import subject_of
from remat_gen.solver.law.bare_graph import BareGraph, Node
from remat_gen.solver.law.program import Program
from remat_gen.solver.law.replay import IllegalScheduleError
from remat_gen.solver.solve import Solver

_DIAMOND = BareGraph(
    (
        Node("a", 1.0, 2, False, ()),
        Node("b", 2.0, 3, False, (0,)),
        Node("c", 4.0, 5, True, (0,)),
        Node("d", 8.0, 7, True, (1, 2)),
    )
)


@pytest.mark.parametrize(
    ("runs", "peak", "time"),
    [
        ((0, 1, 2, 3), 15, 15.0),  # b, c and d together; a is freed before d
        ((0, 2, 1, 3), 15, 15.0),  # another order of first runs
        ((0, 2, 0, 1, 3), 15, 16.0),  # a forward node again
        ((0, 1, 2, 1, 3), 15, 17.0),  # b is remade while a is there
        ((0, 1, 2, 3, 3), 15, 23.0),  # a backward node again
    ],
)
def test_any_order_and_any_rerun(runs: tuple[int, ...], peak: int, time: float) -> None:
    judged = subject_of(_DIAMOND).judge(Program(((), runs)))[1]
    assert (judged.peak_bytes, judged.time_us) == (peak, time)


@pytest.mark.parametrize("runs", [(0, 1, 3, 2), (1, 0, 2, 3), (0, 1, 2)])
def test_what_cannot_run(runs: tuple[int, ...]) -> None:
    with pytest.raises(IllegalScheduleError):
        subject_of(_DIAMOND).judge(Program(((), runs)))


def test_outputs_live_to_the_end() -> None:
    kept = BareGraph(_DIAMOND.nodes, frozenset({0}))
    schedule, judged = subject_of(kept).judge(Program(((), (0, 1, 2, 3))))
    assert judged.peak_bytes == 2 + 3 + 5 + 7
    freed = [step for segment in schedule.segments for step in segment.steps]
    assert len(freed) == 4 + 3  # four runs; all but the output are freed


@given(bare_graphs())
@settings(max_examples=100, deadline=None)
def test_the_plain_peak_frees_at_last_use(graph: BareGraph) -> None:
    nodes = graph.nodes
    last = {
        i: max([j for j, n in enumerate(nodes) if i in n.inputs] + [i]) for i in range(len(nodes))
    }
    peak = max(
        sum(
            nodes[i].nbytes for i in range(at + 1) if i == at or last[i] >= at or i in graph.outputs
        )
        for at in range(len(nodes))
    )
    judged = subject_of(graph).judge(subject_of(graph).plain())[1]
    assert judged.peak_bytes == peak >= largest_node_bytes(graph)
    assert judged.reruns == ()


@given(bare_graphs())
@settings(max_examples=100, deadline=None)
def test_the_staged_view_is_the_same_graph(graph: BareGraph) -> None:
    staged, order = graph.staged()
    assert sorted(order) == list(range(len(graph.nodes)))
    assert [o.backward for o in staged.operations] == sorted(o.backward for o in staged.operations)
    for p, operation in enumerate(staged.operations):
        node = graph.nodes[order[p]]
        assert operation.name == node.name and operation.outputs == (p,)
        assert tuple(order[v] for v in operation.inputs) == node.inputs
        assert all(v < p for v in operation.inputs)
        assert staged.values[p].nbytes == node.nbytes
        assert operation.backward or not node.backward or all(n.backward for n in graph.nodes)


def test_a_chain_is_staged_as_it_stands() -> None:
    graph = uniform_chain(3)
    staged, order = graph.staged()
    assert order == tuple(range(7))
    assert staged.forward_count == 4


@pytest.mark.parametrize("flag", [False, True])
def test_backward_begins_at_the_peak_where_nothing_is_flagged(flag: bool) -> None:
    chain = uniform_chain(3)
    flagged = BareGraph(tuple(replace(node, backward=flag) for node in chain.nodes))
    staged, order = flagged.staged()
    assert order == tuple(range(7))
    assert staged.forward_count == 4  # f0 … f3; five values are there while b2 runs
    solution = Solver(flagged, "rockmate").solve(4)
    assert solution.replay.peak_bytes == 4 and solution.replay.reruns
