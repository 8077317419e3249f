"""Gradients that nobody wants: None, or made all the same, and then freed at once."""

from __future__ import annotations

from pathlib import Path

import pytest

import remat_gen
from remat_gen.review.verifying import verify_file

NET = """
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(128, 128, 3, padding=1, bias=BIAS)
        self.norm = nn.BatchNorm2d(128)
        self.second = nn.Conv2d(128, 128, 3, padding=1, bias=BIAS)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.norm(self.first(x)).relu()).square().mean()


def build_model() -> nn.Module:
    net = Net()
    for name, parameter in net.named_parameters():
        parameter.requires_grad_(name not in FROZEN)
    return net


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(2, 128, 6, 6),)
"""
FROZEN = {
    "weights": (True, {"first.weight", "second.weight"}, "d_relu, g.second_bias = pick_results("),
    "the norm's bias": (True, {"norm.bias"}, "d_first, g.norm_weight, _ = aten.native_batch_norm"),
    "nothing": (False, set(), "g.first_weight = convolution_backward("),
}


@pytest.mark.parametrize("frozen", FROZEN)
def test_no_more_is_held_than_planned(frozen: str, tmp_path: Path) -> None:
    """oneDNN makes the weight's gradient whenever the bias's is wanted."""
    bias, names, line = FROZEN[frozen]
    path = tmp_path / "net.py"
    path.write_text(NET.replace("FROZEN", repr(names)).replace("BIAS", str(bias)))
    made = remat_gen.generate(path, device="cpu", budget="100%")
    assert line in made.text and made.output is not None
    report = verify_file(made.output)
    assert report.ok, report.rows()
