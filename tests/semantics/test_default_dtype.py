"""Numbers that forward makes in torch's default dtype: another one is named, not computed with."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of

TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)
        self.register_buffer("at", torch.arange(8))

    def forward(self, x):
        h = F.gelu(self.layer(x))
        return EXPRESSION.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(6, 8),)
"""


@pytest.mark.parametrize(
    "expression",
    [
        "(h * torch.linspace(0, 1, 8))",
        "(h + torch.rand(8))",
        "(h * torch.tensor(0.5))",
        "(h * (self.at * 0.5))",
        "(h * (self.at / 3))",
        "(h * torch.where(self.at > 3, 0.5, 1.0))",
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_another_default_dtype_is_named(expression: str, behind: bool) -> None:
    pair = make_pair_of(TEXT.replace("EXPRESSION", expression))
    model, x = pair.planned.build_model().train(), torch.randn(6, 8)
    if behind:
        model(x).backward()
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match=r"get_default_dtype\(\) is torch.float64, planned f"):
            model(x)
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize(
    "expression",
    [
        "self.drop(h)",
        "(h * torch.zeros(8, dtype=h.dtype))",
        "(h * (self.at > 3).float())",
        "h[:, self.at]",
    ],
)
def test_where_forward_says_which_it_is_not_asked(expression: str) -> None:
    assert "get_default_dtype" not in make_pair_of(TEXT.replace("EXPRESSION", expression)).text
