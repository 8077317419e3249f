"""A module that forward calls over and over: each call is a layer, and is read as one."""

from __future__ import annotations

from itertools import chain
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


RECURRENT = """
class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.back = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        state, out = torch.zeros_like(x), []
        y = self.norm(x)
        for t in range(TURNS):
            gate = torch.sigmoid(self.up(y) + self.back(state) * t)
            state = gate * state + (1 - gate) * y.roll(1, -1)
            new = torch.tanh(state * y.exp())
            out.append(new * new.cos() + new.sin())
        return x + torch.stack(out).sum(0)
"""


def recurrent_graph(folder: Path, init: str, forward: str, turns: int = 12) -> Graph:
    before = RECURRENT.replace("TURNS", str(turns))
    return traced(folder, source(init, forward, before=before)).graph


def test_each_turn_of_a_recurrence_is_a_layer(tmp_path: Path) -> None:
    graph = recurrent_graph(tmp_path, "self.mixing = Mixing()", "return self.mixing(x).sum()")
    turns = [f"mixing@{n}" for n in range(12)]
    assert layers_of(graph) == turns
    assert layers_of(graph, Phase.BACKWARD) == turns[::-1]
    names = [o.name.partition("@")[2] for o in graph.operations if o.phase is Phase.FORWARD]
    inside = [[n.partition(".")[2] for n in names if n.startswith(f"{t}.")] for t in range(12)]
    assert inside[1:] == inside[:1] * 11 and len(inside[0]) > 10


def test_those_within_layers_are(tmp_path: Path) -> None:
    init = "self.h = nn.ModuleList(Mixing() for _ in range(3))"
    graph = recurrent_graph(tmp_path, init, "for m in self.h:\n    x = m(x)\nreturn x.sum()")
    turns = [[f"h.{i}@{n}" for n in range(12)] for i in range(3)]
    assert [name for name in layers_of(graph) if "@" in name] == [*chain(*turns)]
    assert {"h.0", "h.1", "h.2"} < {*layers_of(graph)}


def test_a_short_loop_is_part_of_its_layer(tmp_path: Path) -> None:
    init = "self.h = nn.ModuleList(Mixing() for _ in range(3))"
    forward = "for m in self.h:\n    x = m(x)\nreturn x.sum()"
    graph = recurrent_graph(tmp_path, init, forward, turns=4)
    assert layers_of(graph) == ["h.0", "h.1", "h.2"]


WRITTEN = {  # what stands for the turns of the model's own forward
    "a `while`": (
        "t = 0\nwhile t < 12:\n    x = x + step(x, t)\n    x = x.cos() * x.sin()\n    t += 1\n"
    ),
    "one statement": "for t in range(12):\n    x = x + step(x, t).cos() * step(x, t + 1)\n",
    "a condition": (
        "for t in range(12):\n    if t:\n        x = x.roll(1, 0)\n    x = x + step(x, t)\n"
        "    x = x.cos() * x.sin().exp()\n"
    ),
    "a condition for some": (
        "for t in range(12):\n    if t > 4:\n        x = x.roll(1, 0)\n    x = x + step(x, t)\n"
        "    x = x.cos() * x.sin().exp()\n"
    ),
    "another loop around it": (
        "for n in range(2):\n    if n:\n        x = x.view(-1, 8).exp()\n"
        "    for t in range(12):\n        x = x + step(x, t)\n        x = x.cos() * x.sin()\n"
    ),
}
STEP = "def step(x, t):\n    return torch.tanh(x * t + x.roll(t, 1) * 2).sigmoid()\n"


@pytest.mark.parametrize("way", WRITTEN)
def test_turns_are_told_by_lines(way: str, tmp_path: Path) -> None:
    init = "self.up = nn.Linear(8, 8)"
    forward = f"x = self.up(x)\n{WRITTEN[way]}return x.sum()"
    graph = traced(tmp_path, source(init, forward, before=STEP)).graph
    turns = 24 if "another" in way else 12
    assert layers_of(graph) == [f"@{n}" for n in range(turns)]
    made = [
        {o.name.partition("@")[0] for o in graph.operations if f"@{n}." in o.name} for n in (2,)
    ]
    assert made == [{""}]


def test_a_loop_whose_turns_differ_is_none(tmp_path: Path) -> None:
    grows = "for t in range(12):\n    for _ in range(t):\n        x = step(x, t)\n    x = x.exp()\n"
    graph = traced(
        tmp_path,
        source("self.up = nn.Linear(8, 8)", f"x = self.up(x)\n{grows}return x.sum()", before=STEP),
    ).graph
    assert not layers_of(graph)
