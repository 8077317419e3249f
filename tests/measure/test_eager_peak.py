"""Eager's peak is predicted as it is measured: nodes of several operations hold what they use."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from one_thread import one_thread as one_thread

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.verification.peak import model_peak

NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        h = self.up(x)
        return ({body}).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(512, 64),)
"""
BODIES = {
    "a square": "self.down(F.gelu(h))",
    "a cube": "self.down(h**3)",
    "RMS": "self.down(h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6))",
    "variance": "self.down(h / torch.sqrt(h.var(-1, keepdim=True) + 1e-5))",
    "normalised": "self.down(F.normalize(h, dim=-1))",
    "gates": "h * torch.sigmoid(self.down(h)) / (1 + h.abs())",
    "mish": "F.mish(self.down(h))",
    "saved for its shape": "self.down(h).gather(-1, (x > 0).long()).gather(-1, (x > 1).long())",
    "zeros that are filled": "self.down(h)[torch.arange(512).flip(0)]",
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_within_two_percent(body: str, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET.format(body=body), encoding="utf-8")
    made = remat_gen.generate(path, budget="100%", static=True, effort="quick", device="cpu")
    eager = load(path, device="cpu")
    measured = model_peak(eager.model, eager.args, eager.kwargs, torch.device("cpu")).peak_bytes
    predicted = made.plan.predicted.eager_peak_bytes
    # what kernels need inside differs by processors; without the temporaries it was 10 to 28 % low
    assert abs(predicted - measured) <= 0.02 * measured
