"""Views behind kernels that lay their results out otherwise than torch's fake ones."""

from __future__ import annotations

import pytest
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

TURNED = "y = {}(self.body(x).view(2, 3, 8).transpose(1, 2)).transpose(1, 2)\n"
FLAT = "return self.head(y.reshape(6, 8))"
CASES = {
    "batch_norm": ("self.norm = nn.BatchNorm1d(8)", "self.norm"),
    "batch_norm, evaluated": ("self.norm = nn.BatchNorm1d(8).eval()", "self.norm"),
    "logsigmoid": ("pass", "nn.functional.logsigmoid"),
    "rrelu": ("self.rrelu = nn.RReLU()", "self.rrelu"),
}


@pytest.mark.parametrize("budget", ["1GB", "lowest"])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_made_where_eager_makes_one(name: str, budget: str) -> None:
    """The step failed: "view size is not compatible with input tensor's size and stride"."""
    init, function = CASES[name]
    forward = TURNED.format(function) + FLAT
    assert_right(make_pair_of(model_source(forward, init=init), budget, "per-layer"))
