"""`verify` on a model whose tensors are all smaller than the allocator's blocks."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.review.verifying import verify_file

pytestmark = pytest.mark.cuda
CELL = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(160):
            x = torch.tanh(self.cell(x))
        return x.sum()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(2, 4),)
"""


def test_blocks_of_512_bytes_are_as_predicted(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(CELL, encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", static=True)
    assert made.output is not None
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
    peak = report.planned_peak
    assert peak is not None and made.plan.predicted.peak_bytes == peak.allocated_peak_bytes
    assert made.plan.predicted.peak_bytes > peak.peak_bytes + 64 * 1024  # requested: 32 each
