"""A share of eager's peak is a share of what its step takes on the GPU, where it can be run."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.ir.eager_peak import PeakSource

pytestmark = pytest.mark.cuda
NET = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.lin(x))
        KEPT
        return y.square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(1024, 64),)
"""
KEPT = {  # whether the replay has it
    "pass": True,
    "unread = [(y * i).exp() for i in range(8)]": False,
}


@pytest.mark.parametrize("kept", KEPT)
def test_eager_is_measured(kept: str, tmp_path: Path) -> None:
    source = tmp_path / "net.py"
    source.write_text(NET.replace("KEPT", kept))
    made = remat_gen.generate(source, budget="90%", device="cuda", effort="quick")
    eager = made.eager
    assert eager.source is (PeakSource.CONFIRMED if KEPT[kept] else PeakSource.MEASURED)
    report = remat_gen.verify(made.output)
    assert report.ok and report.original_peak is not None
    allocated = report.original_peak.allocated_peak_bytes
    assert allocated is not None and abs(eager.nbytes - allocated) <= allocated // 100
