"""Eager's peak, followed on tensors without values: what a step holds, whoever holds it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from one_thread import one_thread as one_thread

import remat_gen
from remat_gen.capture.load.load import load
from remat_gen.ir.eager_peak import PeakSource
from remat_gen.plan import original_step
from remat_gen.plan.pipeline import Generated
from remat_gen.verification.peak import model_peak

NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x, x * 2, x * 3)
        return x**3

    @staticmethod
    def backward(ctx, d):
        x, twice, thrice = ctx.saved_tensors
        return d * x * thrice


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(64, 64), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> {returned}:
        h = self.up(x)
        {body}


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(512, 64),)
"""
BODIES = {
    "variables until forward returns": """wide = torch.cat([x, x, x, x], 1)
        keys = wide.sum(1, keepdim=True)
        return (self.down(h) + keys).relu().mean()""",
    "a deviation": "return self.down(h).std(-1).square().mean()",
    "a least": "return self.down(h).amin(-1).square().mean()",
    "distances": "return torch.cdist(h, self.down(h)).square().mean()",
    "what a branch keeps that feeds no loss": """aside = self.down(h).exp().sin().cos()
        return (h.square().mean(), aside.detach())""",
    "what a function saves": "return Cube.apply(self.down(h)).square().mean()",
    "a checkpoint of the model's own": """h = checkpoint(
            lambda h: self.down(h).exp().sin().cos().tanh().sin(), h, use_reentrant=False
        )
        return h.square().mean()""",
    "products in groups": """offs = torch.tensor([256, 512], dtype=torch.int32)
        both = torch.stack([self.up.weight, self.down.weight])
        return F.grouped_mm(h, both, offs=offs).exp().sin().mean()""",
    "an LSTM": "return self.both(h.view(32, 16, 64))[0].exp().mean()",
    "outputs without a loss": "return self.down(h), h.exp().sin()",
}


def net(folder: Path, body: str) -> Path:
    path = folder / "net.py"
    returned = "object"
    text = NET.format(body=body, returned=returned)
    if "self.both" in body:
        lstm = "nn.LSTM(64, 32, 2, batch_first=True, bidirectional=True)"
        text = text.replace("__init__()\n", f"__init__()\n        self.both = {lstm}\n", 1)
    path.write_text(text, encoding="utf-8")
    return path


def planned(path: Path, budget: str) -> Generated:
    return remat_gen.generate(path, budget=budget, static=True, effort="quick", device="cpu")


def measured_bytes(path: Path) -> int:
    eager = load(path, device="cpu")
    return model_peak(eager.model, eager.args, eager.kwargs, torch.device("cpu")).peak_bytes


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_step_that_does_not_fit_is_predicted_within_a_percent(
    body: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = net(tmp_path, body)
    measured = measured_bytes(path)
    monkeypatch.setattr(original_step, "_available_bytes", lambda: 0)
    made = planned(path, "100%")
    assert made.eager.source is not PeakSource.MEASURED
    assert made.eager == made.plan.predicted.eager
    assert abs(made.eager.nbytes - measured) <= 0.01 * measured
