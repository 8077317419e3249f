"""A few of many layers are traced: the graph of all is the one that a trace of all finds."""

from __future__ import annotations

from pathlib import Path
from textwrap import indent

import pytest
from tracing import traced

from remat_gen.capture.repeated.repeated_layers import Repeated
from remat_gen.capture.trace import trace as tracing_module
from remat_gen.ir.graph import Graph, verify

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Scaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, by):
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.by = inputs[1]

    @staticmethod
    def backward(ctx, d_y):
        return d_y * ctx.by, None


scaled = Scaled.apply


class Layer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index, self.scale = index, {scale}
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.register_buffer("factor", torch.ones(8))

    def forward(self, x, mask, bias=None):
        scores = x @ x.transpose(1, 2) / self.scale
        scores = scores if bias is None else scores + bias
        x = x + scores.masked_fill(mask.unsqueeze(0), 0.0) @ self.norm(x)
        return F.dropout(x + self.down(torch.relu(self.up(x))), 0.1) * self.factor


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer(i) for i in range({count}))
        self.bias = nn.Parameter(torch.randn(4, 4))
        {init}

    def forward(self, x):
        mask = torch.ones(4, 4, dtype=torch.bool).triu(1)
{forward}


def build_model():
    torch.manual_seed(0)
    return Net()


def example_inputs():
    return (torch.randn(3, 4, 8),)
"""
PLAIN = """
for layer in self.layers:
    x = layer(x, mask)
return x.square().mean()
"""
SHARED = """
bias = self.bias.tanh()
for layer in self.layers:
    x = layer(x, mask, bias)
return x.square().mean()
"""
TWICE = """
for layer in self.layers:
    x = layer(x, mask)
for layer in self.others:
    x = layer(x, mask)
return x.square().mean()
"""
LOSSES = """
total = 0.0
for layer in self.layers:
    x = layer(x, mask)
    total = total + x.abs().mean()
return total + x.square().mean()
"""
ENDS = "self.layers[0].norm.eps = self.layers[9].norm.eps = 0.5"
OTHERS = "self.others = nn.ModuleList(Layer(i) for i in range(9))"
ALTERNATING = "4.0 if index % 2 else 2.0"


def text_of(forward: str, count: int = 10, init: str = "pass", scale: str = "2.0") -> str:
    """Return a model file with such a forward over its layers."""
    return TEXT.format(
        forward=indent(forward.strip(), " " * 8), count=count, init=init, scale=scale
    )


class Found:
    """What a trace was made of: its graph, and the lists of which a few layers were traced."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.lists: tuple[Repeated, ...] = ()
        self.all_layers = tracing_module.with_all_layers
        monkeypatch.setattr(tracing_module, "with_all_layers", self._with_all_layers)

    def _with_all_layers(self, graph: Graph, lists: tuple[Repeated, ...]) -> Graph:
        made = self.all_layers(graph, lists)
        self.lists = lists
        return made

    def assert_same(self, folder: Path, text: str) -> None:
        """Compare the graph with that of a trace of all layers, names and order included."""
        found = traced(folder, text).graph
        if not self.lists:  # it is one
            return
        with self.monkeypatch.context() as patch:
            patch.setattr(tracing_module._Step, "repeated_layers", lambda _: ())
            assert traced(folder, text).graph == verify(found)


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    return Found(monkeypatch)


@pytest.mark.parametrize(
    ("text", "lists"),
    [
        (text_of(PLAIN), [("layers", 10, 1, 1, 1)]),
        (text_of(PLAIN, count=11, scale=ALTERNATING), [("layers", 11, 1, 2, 2)]),
        (text_of(PLAIN, init=ENDS), [("layers", 10, 1, 1, 1)]),
        (text_of(SHARED), [("layers", 10, 2, 1, 2)]),
        (text_of(TWICE, init=OTHERS), [("layers", 10, 1, 1, 1), ("others", 9, 1, 1, 1)]),
    ],
    ids=["plain", "alternating", "other ends", "summed gradient", "two lists"],
)
def test_a_few_are_traced(found: Found, tmp_path: Path, text: str, lists: list[object]) -> None:
    found.assert_same(tmp_path, text)
    assert [(r.path, r.count, r.first, r.every, r.last) for r in found.lists] == lists


@pytest.mark.parametrize(
    "forward",
    [
        LOSSES,
        PLAIN.replace("x = layer(x, mask)", "x = layer(x, mask)[:, torch.arange(4)]"),
        PLAIN.replace("(x, mask)", "(x, mask if layer is not self.layers[5] else mask.mT)"),
        PLAIN.replace("in self.layers", "in list(self.layers)[:5] + list(self.layers)[4:]"),
        "for i in range(10):\n    x = self.layers[i](x, mask)\nreturn x.square().mean()",
    ],
    ids=["losses", "outside of a layer", "another mask", "a layer twice", "by index"],
)
def test_whatever_they_are_used_for(found: Found, tmp_path: Path, forward: str) -> None:
    found.assert_same(tmp_path, text_of(forward))


ONCE = """
for i, layer in enumerate(self.layers):
    {before}
    x = layer(x, mask)
    {behind}
return {result}
"""


@pytest.mark.parametrize(
    ("before", "behind", "result"),
    [
        ("pass", "x = x.detach() if i == 5 else x", "x.square().mean()"),
        ("pass", "x = x * 1.0 if i == 5 else x", "x.square().mean()"),
        ("pass", "x = x.clone() if i == 4 else x.sigmoid() * 0 + x", "x.square().mean()"),
        ("pass", "kept = x if i == 3 else x if i == 0 else kept", "(x + kept).square().mean()"),
        ("pass", "kept = x if i == 2 else x if i == 0 else kept", "(x * kept).square().mean()"),
        ("pass", "kept = x if i == 3 else x if i == 0 else kept", "x.square().mean(), kept"),
        ("pass", "kept = [x] if i == 0 else [*kept, x]", "x.square().mean(), kept[-2]"),
        ("pass", "kept = [x] if i == 0 else [*kept, x]", "torch.stack(kept).square().mean()"),
        ("torch.set_grad_enabled(i != 5)", "torch.set_grad_enabled(True)", "x.square().mean()"),
        ("pass", "_ = x.register_hook(lambda g: g * 2) if i == 5 else 0", "x.square().mean()"),
    ],
    ids=lambda text: text[:40] if len(text) < 200 else None,
)
def test_what_one_layer_is_used_for(
    found: Found, tmp_path: Path, before: str, behind: str, result: str
) -> None:
    """What is done with one of them by its number is no repetition."""
    found.assert_same(tmp_path, text_of(ONCE.format(before=before, behind=behind, result=result)))
    if "kept[-2]" not in result:
        assert found.lists == ()


@pytest.mark.parametrize(
    "decides",
    ["x.shape[0] <= i", "x.shape[0] < i - 4", "x.shape[0] < len(self.layers) - 7"],
)
def test_what_a_shorter_batch_is_used_for(found: Found, tmp_path: Path, decides: str) -> None:
    """A batch that the example has not is told by a layer's number, or by how many they are."""
    behind = f"x = x * 0.5 if {decides} else x"
    text = text_of(ONCE.format(before="pass", behind=behind, result="x.square().mean()"))
    found.assert_same(tmp_path, text.replace("torch.randn(3, 4, 8)", "torch.randn(16, 4, 8)"))


@pytest.mark.parametrize(
    "behind",
    [
        "_ = x.register_hook(lambda g, by=1.0 + i: g * by)",
        "_ = x.grad_fn.register_prehook(lambda g, by=1.0 + i: (g[0] * by,))",
        "_ = getattr(x.grad_fn, 'register_' + 'prehook')(lambda g, by=1.0 + i: (g[0] * by,))",
        "_ = x.register_hook(lambda g: g / len(self.layers)) if i == 0 else 0",
        "x = scaled(x, 1.0 + i)",
        "x = scaled(x, 1.0 / len(self.layers)) if i == 0 else x",
        "x = torch.vmap(lambda row, by=1.0 + i: scaled(row, by))(x)",
    ],
)
def test_what_only_backward_tells(found: Found, tmp_path: Path, behind: str) -> None:
    """Forward's operations are those of alike layers; what Python does in backward is not."""
    text = ONCE.format(before="pass", behind=behind, result="x.square().mean()")
    found.assert_same(tmp_path, text_of(text))
    assert found.lists == ()


@pytest.mark.parametrize(
    "init",
    [
        "self.layers[5].norm.eps = 0.5",
        "self.layers[5].up.weight = self.layers[3].up.weight",
        "self.layers[5].down.bias.requires_grad_(False)",
        "self.layers[5] = nn.ModuleList([Layer(5)])[0]; self.layers[5].up.bias = None",
        "self.tied = self.layers[4].down.weight",
    ],
)
def test_layers_that_are_not_alike(found: Found, tmp_path: Path, init: str) -> None:
    found.assert_same(tmp_path, text_of(PLAIN, init=init))
    assert found.lists == ()
