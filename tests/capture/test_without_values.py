"""Models without values: traced as those with values are, also with a batch that varies."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace
from remat_gen.ir.fingerprint import graph_sha256

TIED = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.register_buffer("scale", torch.ones(WIDTH))
        self.encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True), 2
        )
        self.head = nn.Linear(WIDTH, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids):
        return self.head(self.encoder(self.embedding(ids)) * self.scale).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randint(50, (4, 6)),)
"""


@pytest.mark.parametrize("dynamic", [(), None, ("ids:0",)])
def test_a_model_without_values_has_the_same_graph(
    tmp_path: Path, dynamic: tuple[str, ...] | None
) -> None:
    """Its layers are deep copies of one another, its head is tied."""
    path = tmp_path / "net.py"
    path.write_text(TIED.replace("WIDTH", "16"))
    graphs = []
    for fake in (False, True):
        loaded = load(path, device="cpu", fake=fake)
        traced = trace(loaded.model, loaded.args, loaded.kwargs, path, dynamic)
        graphs.append((graph_sha256(traced.graph), traced.dynamic, traced.strict))
    assert graphs[0] == graphs[1]
    assert graphs[0][1] == (() if dynamic == () else ("ids:0",))


def test_nothing_is_allocated_for_a_varying_batch(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(TIED.replace("WIDTH", "16_384"))  # 8.6 GB of attention weights
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loaded = load(path, device="cpu", fake=True)
    weights = sum(p.numel() * p.itemsize for p in loaded.model.parameters())
    assert trace(loaded.model, loaded.args, loaded.kwargs, path, None).dynamic == ("ids:0",)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert weights > 8e9 and grown < 1e9
