"""A module that forward calls over and over: each call is a layer, and is read as one."""

from __future__ import annotations

from pathlib import Path

import pytest
from tracing import BLOCK, source, traced

from remat_gen.ir.graph import Graph, Phase

MODULES = """
class Stack(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x

class Square(nn.Module):
    def forward(self, x):
        return x * x.exp().sin().cos().tanh().sigmoid()

class Looping(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(8), nn.Linear(8, 8)

    def forward(self, x):
        for _ in range(3):
            x = x + self.up(self.norm(x)).sigmoid()
        return x

class Attended(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        q, k = self.query(x).view(x.shape[0], 2, 4), self.key(x).view(x.shape[0], 2, 4)
        return x + (q @ k.transpose(1, 2) @ k).view(x.shape[0], 8)
"""
LOOP = "for _ in range({}):\n    x = self.block(x)\nreturn x.sum()"


def graph_of(folder: Path, init: str, forward: str) -> Graph:
    return traced(folder, source(init, forward, before=BLOCK + MODULES)).graph


def layers_of(graph: Graph, phase: Phase = Phase.FORWARD) -> list[str]:
    """Return the layers of a half of the step, each once, in order."""
    found = (graph.layers.of(o.module) for o in graph.operations if o.phase is phase)
    return [layer for layer in dict.fromkeys(found) if layer]


def test_each_call_is_a_layer(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.block = Block()", LOOP.format(4))
    calls = [f"block@{n}" for n in range(4)]
    assert layers_of(graph) == calls
    assert layers_of(graph, Phase.BACKWARD) == calls[::-1]


def test_operations_of_all_calls_are_called_alike(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.block = Block()", LOOP.format(4))
    forward = [o.name for o in graph.operations if o.phase is Phase.FORWARD]
    inside = [
        [name.removeprefix(layer) for name in forward if graph.layers.holding(name) == layer]
        for layer in layers_of(graph)
    ]
    assert inside[1:] == inside[:-1] and len(inside[0]) == 5


def test_parameters_stay_where_they_are(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.block = Block()", LOOP.format(3))
    paths = {i.path for i in graph.inputs}
    assert "block.norm.weight" in paths and not any("@" in path for path in paths)


@pytest.mark.parametrize(
    ("init", "forward"),
    [
        pytest.param("self.block = Block()", LOOP.format(2), id="two calls"),
        pytest.param("self.block = Square()", LOOP.format(4), id="made of no modules"),
        pytest.param("self.block = nn.Sequential(nn.SiLU())", LOOP.format(4), id="little"),
        pytest.param("self.block = Stack(4)", LOOP.format(1), id="one after another"),
        pytest.param("self.block = Looping()", LOOP.format(1), id="a loop within one call"),
    ],
)
def test_what_is_no_layer(tmp_path: Path, init: str, forward: str) -> None:
    graph = graph_of(tmp_path, f"{init}\nself.lin = nn.Linear(8, 8)", f"x = self.lin(x)\n{forward}")
    assert not any("@" in o.module for o in graph.operations)


def test_a_line_that_views_what_a_layer_returns_is_no_new_call(tmp_path: Path) -> None:
    """A linear layer of three dimensions begins with a view, and the user's own is one, too."""
    graph = graph_of(tmp_path, "self.block = Attended()", LOOP.format(3))
    assert layers_of(graph) == ["block@0", "block@1", "block@2"]


def test_other_operations_may_stand_between(tmp_path: Path) -> None:
    forward = "for n in range(3):\n    x = self.block(x) * 0.5**n\nreturn x.sum()"
    assert len(layers_of(graph_of(tmp_path, "self.block = Block()", forward))) == 3


def test_only_the_outermost_has_turns(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.block = nn.Sequential(Block(), Block())", LOOP.format(3))
    assert all(o.module.count("@") <= 1 for o in graph.operations)


def test_layers_in_a_stack_that_is_called_again_are_told_apart(tmp_path: Path) -> None:
    graph = graph_of(tmp_path, "self.block = Stack(2)", LOOP.format(3))
    assert layers_of(graph) == [f"block@{n}.blocks.{i}" for n in range(3) for i in range(2)]


def test_members_of_a_list_that_are_called_in_turns(tmp_path: Path) -> None:
    init = "self.blocks = nn.ModuleList([Block(), Block()])"
    forward = (
        "for _ in range(3):\n    for block in self.blocks:\n        x = block(x)\nreturn x.sum()"
    )
    graph = graph_of(tmp_path, init, forward)
    assert layers_of(graph) == [f"blocks.{i}@{n}" for n in range(3) for i in range(2)]
