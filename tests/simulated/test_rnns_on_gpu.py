"""RNNs on a GPU are one operation with all their layers, as cuDNN runs them."""

from __future__ import annotations

from pathlib import Path

import pytest
from on_gpu_steps import SIMULATED

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.capture.trace.trace import trace_loaded
from remat_gen.ir.errors import TraceError
from remat_gen.review.verifying import verify_file

if SIMULATED:
    from simulated_gpu.simulated_rnns import install

    install()

pytestmark = pytest.mark.cuda
NET = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 12)
        INIT

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.lin(x))
        FORWARD
        return torch.relu(x).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(6, 5, 8),)
"""
RUN = "x, state = self.rnn(x)"
NETS = {
    "LSTM": ("self.rnn = nn.LSTM(12, 16, 2, bidirectional=True)", RUN),
    "LSTM, batch first": ("self.rnn = nn.LSTM(12, 16, batch_first=True)", RUN),
    "LSTM, projected": ("self.rnn = nn.LSTM(12, 16, 2, proj_size=6)", RUN),
    "LSTM, its states": (
        "self.rnn = nn.LSTM(12, 16)",
        "x, (h, c) = self.rnn(x)\n        x = x + (h * c).sum(0)",
    ),
    "GRU": ("self.rnn = nn.GRU(12, 16, 2, bias=False)", RUN),
    "GRU, frozen in part": (
        "self.rnn = nn.GRU(12, 16)\n        self.rnn.weight_hh_l0.requires_grad_(False)",
        RUN,
    ),
    "RNN": ("self.rnn = nn.RNN(12, 16, 2, nonlinearity='relu')", RUN),
    "learned state": (
        "self.rnn = nn.GRU(12, 16)\n        self.h = nn.Parameter(torch.randn(1, 5, 16))",
        "x, _ = self.rnn(x, self.h)",
    ),
    "cells": (
        "self.rnn, self.next = nn.LSTMCell(12, 16), nn.GRUCell(16, 16)",
        "h, c = self.rnn(x[0])\n        x = self.next(c, h)",
    ),
}
REFUSED = {
    "dropout": ("self.rnn = nn.LSTM(12, 16, 2, dropout=0.5)", RUN, "dropout between them"),
    "autocast": (
        "self.rnn = nn.GRU(12, 16)",
        "with torch.autocast('cuda', torch.bfloat16):\n            x, _ = self.rnn(x)",
        "under autocast",
    ),
    "packed": (
        "self.rnn = nn.GRU(12, 16)",
        "h, sizes = x.new_zeros(1, 5, 16), torch.tensor([5] * 6)\n"
        "        packed, weights = x.flatten(0, 1), list(self.rnn.parameters())\n"
        "        x, _ = torch.gru(packed, sizes, h, weights, True, 1, 0.0, True, False)",
        "packed sequences",
    ),
}


def written(folder: Path, init: str, forward: str) -> Path:
    source = folder / "net.py"
    source.write_text(NET.replace("INIT", init).replace("FORWARD", forward))
    return source


@pytest.mark.parametrize("name", NETS)
def test_one_operation_to_the_bit(name: str, tmp_path: Path) -> None:
    source = written(tmp_path, *NETS[name])
    generated = remat_gen.generate(source, budget="100%", device="cuda", effort="quick")
    text = generated.output.read_text()
    assert "run_rnn(" in text and "rnn_backward(" in text
    report = verify_file(generated.output)
    assert report.ok, report.rows()
    assert report.bitwise


def test_all_layers_are_one_operation(tmp_path: Path) -> None:
    graph = trace_loaded(load(written(tmp_path, *NETS["LSTM"]), device="cuda"), ()).graph
    names = [o.target for o in graph.operations if "rnn" in o.target]
    assert names == ["remat.rnn.default", "remat.rnn_backward.default"]
    (forward, _) = (o for o in graph.operations if "rnn" in o.target)
    assert dict(forward.kwargs) == {"kind": "lstm", "layers": 2, "bidirectional": True}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cudnn_runs_otherwise_is_refused(name: str, tmp_path: Path) -> None:
    *parts, says = REFUSED[name]
    with pytest.raises(TraceError, match=says):
        trace_loaded(load(written(tmp_path, *parts), device="cuda"), ())
