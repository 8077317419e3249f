"""A batch of 1, where eager treats it otherwise: the original forward runs it, with a warning."""

from __future__ import annotations

import pytest
import torch
from varying import assert_as_eager, varying

SOURCE = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 1)

    def forward(self, x):
        y = self.down(self.up(x).sin()).squeeze()
        return y.softmax(-1).square().sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(6, 8),)
"""


@pytest.mark.limit(
    "a batch of 1, of a model whose trace is right from 2 on (`2 <= batch`)",
    "runs by `forward_eager()` with a warning: its memory is not planned",
)
def test_one_row_runs_as_eager_does() -> None:
    planned = varying(SOURCE)
    assert str(planned.length) == "2 <= batch <= 6"
    assert_as_eager(planned, 2)
    with pytest.warns(UserWarning, match=r"right from 2 on; 1 runs by forward_eager, unplanned"):
        assert_as_eager(planned, 1)


def test_what_is_no_batch_is_refused_as_ever() -> None:
    planned = varying(SOURCE)
    for wrong in (3, torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"x is .*planned for float32"):
            planned.planned.model(wrong)
