"""Checkmate's DFGraph as JSON: the same problem as our own file of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from remat_gen.bare.graph_file import parse_graph
from remat_gen.ir.errors import GraphError
from remat_gen.solver.law.bare_graph import BareGraph
from remat_gen.solver.solve import Solver

LAYERS = 6


def _dfgraph() -> dict[str, Any]:
    """Return a chain with a loss as Checkmate has it: forward 0 … n, backward after it."""
    count = 2 * LAYERS + 1
    args = {str(i): [i - 1] for i in range(1, LAYERS + 1)}
    args |= {str(i): [i - 1, count - 1 - i] for i in range(LAYERS + 1, count)}
    return {
        "v": list(reversed(range(count))),
        "args": args,
        "backward_nodes": list(range(LAYERS + 1, count)),
        "cost_cpu": {str(i): 1 + (i > LAYERS) for i in range(count)},
        "cost_ram": {str(i): 4 + i % 3 for i in range(count)},
        "node_names": {"0": "conv", "1": "conv", "2": "loss"},
        "cost_ram_parameters": 12_345,
    }


def _ours(plain: dict[str, Any]) -> BareGraph:
    names = [str(i) for i in range(len(plain["v"]))]
    names[:3] = ["conv (0)", "conv (1)", "loss"]
    nodes = [
        {
            "name": names[i],
            "time": plain["cost_cpu"][str(i)],
            "bytes": plain["cost_ram"][str(i)],
            "backward": i in plain["backward_nodes"],
            "inputs": [names[j] for j in plain["args"].get(str(i), [])],
        }
        for i in range(len(plain["v"]))
    ]
    return parse_graph(json.dumps({"nodes": nodes}))


def test_it_is_the_same_graph() -> None:
    plain = _dfgraph()
    assert parse_graph(json.dumps(plain)) == _ours(plain)


def test_it_is_solved() -> None:
    solver = Solver(parse_graph(json.dumps(_dfgraph())), "auto")
    found = solver.solve(solver.plain.peak_bytes * 7 // 10)
    assert found.replay.peak_bytes <= solver.plain.peak_bytes * 7 // 10
    assert found.replay.time_us > solver.plain.time_us


def test_costs_are_1_where_there_are_none() -> None:
    graph = parse_graph(json.dumps({"v": [0, 1], "args": {"1": [0]}}))
    assert [(n.name, n.time, n.nbytes, n.inputs) for n in graph.nodes] == [
        ("0", 1.0, 1, ()),
        ("1", 1.0, 1, (0,)),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tmp": 1}, "has an unknown 'tmp'"),
        ({"v": [0, 0]}, "v: 0 stands twice"),
        ({"v": []}, "v: holds no node"),
        ({"backward_nodes": [99]}, "backward_nodes: 99 is no node of v"),
        ({"args": {"1": [99]}}, "args of 1: 99 is no node of v"),
        ({"args": {"x": [0]}}, "args: x is no node of v"),
        ({"cost_cpu": {"0": 1}}, "cost_cpu: has no 1, a node of v"),
        ({"cost_ram": {"0": -1}}, "must be at least 0|has no 1"),
        ({"args": {"1": [2]}}, "stands below it"),
        ({"nodes": []}, "nodes"),
    ],
)
def test_what_is_none_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_graph(json.dumps(_dfgraph() | change))
