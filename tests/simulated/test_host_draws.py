"""Numbers that a model on a GPU draws on the host are drawn again with the host's generator."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.review.verifying import verify_file

pytestmark = pytest.mark.cuda
NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            kept = DRAWN
            hidden = torch.tanh(self.first(x)) * kept.to(x.device)
            x = x + F.pad(self.second(hidden), (0, 24))
        return x.square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(16, 32),)
"""
DRAWS = {
    "rand": "torch.rand(16, 64).floor() + torch.rand(16, 64)",
    "bernoulli": "torch.bernoulli(torch.full((16, 64), 0.8)) / 0.8",
    "dropout": "F.dropout(torch.ones(16, 64), 0.2, self.training)",
    "both": "F.dropout(torch.ones(16, 64), 0.2) + F.dropout(torch.ones_like(x[:, :1])).cpu()",
}


@pytest.mark.parametrize("drawn", DRAWS)
def test_a_mask_of_the_host_is_drawn_again(drawn: str, tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(NET.replace("DRAWN", DRAWS[drawn]), encoding="utf-8")
    made = remat_gen.generate(path, device="cuda", budget="100%", recompute=["*"])
    assert made.output is not None
    assert "rerun_random_on_host(" in made.text
    assert ("rerun_random(" in made.text) == (drawn == "both")
    report = verify_file(made.output)
    assert report.ok and report.bitwise, report.rows()
