"""Products of lazy conjugates copy them first: that is in the plan, and in its budget."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.review.verifying import verify_file

TEXT = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 64, 64, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        h = self.weight * x
        return torch.bmm(torch.bmm(h, h.sin()), h).abs().sum()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.tensor(1.0),)
"""


@pytest.mark.parametrize("budget", ["100%", "80%"])
def test_the_copy_is_workspace(budget: str, tmp_path: Path) -> None:
    """It was not measured, and the peak a quarter above the budget."""
    path = tmp_path / "net.py"
    path.write_text(TEXT, encoding="utf-8")
    made = remat_gen.generate(path, device="cpu", budget=budget)
    assert made.output is not None
    report = verify_file(made.output)
    assert report.bitwise
    assert report.planned_peak is not None
    assert report.planned_peak.peak_bytes == made.plan.predicted.peak_bytes
