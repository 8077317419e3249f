"""Blocks whose texts are equal, and which are still no class: each was one, and went wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emitting import HEAD, Choose, assert_bitwise, at_share, blocks_run, emit, keep_all

BUILD = """
def build_model():
    return Net()


def example_inputs():
    return (torch.randn(64, 16),)
"""

SWAPPED = """
class Couple(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.down = nn.Linear(64, 16)

    def forward(self, a, b):
        return a * torch.sigmoid(self.down(torch.relu(self.up(b)))), b * torch.tanh(a.exp())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Couple() for _ in range(8))

    def forward(self, x):
        a, b = x.sin(), x.cos()
        for i, layer in enumerate(self.h):
            a, b = layer(a, b)
            if i == 4:
                a, b = b, a
        return (a * b).sum()

"""

CONTAINERS = """
class Layer(nn.Module):
    def __init__(self, named):
        super().__init__()
        a, b = nn.Linear(16, 16), nn.Linear(16, 16)
        self.ops = nn.ModuleDict({"0": a, "1": b}) if named else nn.ModuleList([a, b])

    def forward(self, x):
        for op in self.ops.children():
            x = torch.sigmoid(torch.tanh(op(x))).exp()
        return x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Layer(i in (3, 4)) for i in range(8))

    def forward(self, x):
        for layer in self.h:
            x = layer(x)
        return x.sum()

"""

HANDED_IN = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(16, 16)
        self.other = nn.Linear(16, 16)
        self.register_buffer("scale", torch.rand(16) + 1)
        self.register_buffer("shift", torch.randn(16))

    def forward(self, x, scale=None, shift=None):
        scale = self.scale if scale is None else scale
        shift = self.shift if shift is None else shift
        x = torch.tanh(self.one(x)) * scale
        return torch.sigmoid(self.other(torch.tanh(x + shift)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.h = nn.ModuleList(Layer() for _ in range(8))

    def forward(self, x, scale, shift):
        for i, layer in enumerate(self.h):
            x = layer(x, scale=scale) if i % 2 else layer(x, shift=shift)
        return x.sum()

"""


@pytest.mark.parametrize("choose", [keep_all, at_share("per-layer", 0.0)], ids=["all", "least"])
def test_halves_that_change_places(tmp_path: Path, choose: Choose) -> None:
    assert_bitwise(emit(tmp_path, HEAD + SWAPPED + BUILD, choose))


def test_a_list_and_a_dict_of_the_same_keys(tmp_path: Path) -> None:
    emitted = emit(tmp_path, HEAD + CONTAINERS + BUILD)
    assert_bitwise(emitted)
    assert {("LayerBlock", "h.1"), ("Layer3", "h.3")} <= {*blocks_run(emitted.text)}
    assert "ops.0.weight" in emitted.text


@pytest.mark.parametrize("choose", [keep_all, at_share("per-layer", 0.0)], ids=["all", "least"])
def test_an_input_and_a_buffer_of_the_same_name(tmp_path: Path, choose: Choose) -> None:
    inputs = BUILD.replace("(64, 16),)", "(64, 16), torch.rand(16) + 2, torch.randn(16))")
    assert_bitwise(emit(tmp_path, HEAD + HANDED_IN + inputs, choose))


def test_a_value_that_is_called_as_the_version_of_an_output(tmp_path: Path) -> None:
    source = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(16, 16)
        self.b = nn.Linear(16, 16)

    def forward(self, x):
        y = torch.exp(self.a(x))
        y_version = torch.sigmoid(self.b(y))
        return y, torch.tanh(y_version) * y_version

"""
    emitted = emit(tmp_path, HEAD + source + BUILD)
    assert_bitwise(emitted)
    assert re.search(r"self\.y_version = self\.y\._version", emitted.text)
