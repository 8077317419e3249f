"""Losses that PyTorch returns in as much memory as they were summed from take what they should."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.review.verifying import verify_file

TEXT = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(16, 64)
        self.second = nn.Linear(64, 64)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        h = torch.sigmoid(self.first(x))
        each = F.{loss}(h, y, reduction="none").sum()
        return {weight} * F.{loss}(self.second(h).sigmoid(), y{reduction}) + each


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(32, 16), torch.rand(32, 64)
"""
LOSSES = ("mse_loss", "smooth_l1_loss", "soft_margin_loss", "binary_cross_entropy", "huber_loss")


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("reduction", ["", ', reduction="sum"'], ids=["mean", "sum"])
def test_a_loss_takes_four_bytes(loss: str, reduction: str, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    text = TEXT.format(loss=loss, reduction=reduction, weight=2.0)
    path.write_text(text, encoding="utf-8")
    made = remat_gen.generate(path, device="cpu", budget="100%")
    assert made.output is not None
    report = verify_file(made.output)
    assert report.bitwise
    assert report.planned_peak is not None
    assert report.planned_peak.peak_bytes == made.plan.predicted.peak_bytes
