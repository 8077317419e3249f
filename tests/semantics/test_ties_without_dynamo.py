"""Tied parameters where Dynamo refuses the model: autograd holds the sum of their gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace_loaded

TIED = """
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(64, 512)
        self.down = nn.Linear(512, 64)

    @torch._dynamo.disable
    def forward(self, x):
        return x + self.down(F.gelu(self.up(x)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.other = nn.Embedding(1000, 64)
        twice = Layer()
        self.h = nn.ModuleList([Layer(), twice, Layer(), Layer(), twice])
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embed.weight
        THIRD

    def forward(self, ids):
        x = self.embed(ids) + self.other(ids.flip(0))
        for layer in self.h:
            x = layer(x)
        return self.head(x[:, -1:]).logsumexp(-1).mean()


def build_model():
    return Tied()


def example_inputs():
    return (torch.randint(1000, (8, 32)),)
"""


@pytest.mark.parametrize("third", ["pass", "self.other.weight = self.embed.weight"])
def test_what_autograd_holds_is_counted(tmp_path: Path, third: str) -> None:
    path = tmp_path / "tied.py"
    path.write_text(TIED.replace("THIRD", third))
    traced = trace_loaded(load(path), None)
    assert not traced.strict
    sums = {g.of: g.tensor for g in traced.graph.gradients if "h." not in g.of}
    assert sums["embed_weight"] and sums["head_weight"] is None
    made = remat_gen.generate(path, budget="45%", strategy="ogc")
    assert made.output is not None and made.plan.predicted.reruns > 0
    report = remat_gen.verify(made.output)
    assert report.ok and report.bitwise and report.planned_peak is not None
    assert report.planned_peak.peak_bytes == made.plan.predicted.peak_bytes
    assert made.plan.predicted.peak_bytes <= made.plan.asked.budget_bytes


TWICE = """
import torch
from torch import nn


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two, self.head = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 4)
        self.two.weight = self.one.weight

    def forward(self, x):
        for _ in range(5):
            x = torch.tanh(self.two(torch.tanh(self.one(x))))
        loss = self.head(x).pow(2).mean()
        self.last = loss.detach()
        return loss


def build_model():
    torch.manual_seed(0)
    return Twice()


def example_inputs():
    return (torch.randn(64, 64),)
"""


def test_names_that_are_read_in_turns(tmp_path: Path) -> None:
    """Autograd adds up what comes as it comes: (a1 + b1) + a2, not (a1 + a2) + b1."""
    path = tmp_path / "twice.py"
    path.write_text(TWICE)
    output = remat_gen.generate(path, budget="97%", device="cpu").output
    assert output is not None
    found = []
    for file in (path, output):
        model = load(file, device="cpu").model
        torch.manual_seed(9)
        model(torch.randn(64, 64)).backward()
        found.append([p.grad for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
