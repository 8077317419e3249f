"""`torch.einsum` of three operands: opt_einsum chooses their order by the lengths of each step."""

from __future__ import annotations

import pytest
from varying import assert_as_eager, varying

pytest.importorskip("opt_einsum")  # among what tests install
SOURCE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Parameter(torch.randn(16, {inner}) / 4)
        self.b = nn.Parameter(torch.randn({inner}, 16) / 4)
        self.up = nn.Linear(16, 16)

    def forward(self, x):
        h = torch.einsum("bd,de,ef->bf", self.up(x), self.a, self.b)
        return torch.relu(h).square().mean()


def build_model():
    torch.manual_seed(0)
    return Net()


def example_inputs():
    return (torch.randn(64, 16),)
"""


def test_an_order_that_is_the_same_for_all() -> None:
    """It was taken for one of 64 rows alone: opt_einsum makes numbers of the sizes."""
    planned = varying(SOURCE.format(inner=4))
    assert str(planned.length) == "2 <= batch <= 64"  # of one row torch makes another product
    for number in (64, 33, 2):
        assert_as_eager(planned, number)


def test_an_order_that_another_one_takes_the_place_of() -> None:
    """Of many rows the two matrices are multiplied first, of eight the rows by the first."""
    planned = varying(SOURCE.format(inner=512))
    assert str(planned.length) == "9 <= batch <= 64"
    for number in (64, 33, 9):
        assert_as_eager(planned, number)
    with pytest.raises(ValueError, match=r"planned for float32\[9 <= batch <= 64, 16\]"):
        planned.steps(8)
