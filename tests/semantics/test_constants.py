"""Tensors that are plain attributes are written out, and read as what they are: whole, in parts."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

BODY = "x = self.body(x)\n"
INIT = (
    "self.rows = torch.arange(16.0).view(2, 8) / 7 + 1\n"
    "self.turned = self.rows.t()\n"
    "self.first = self.rows[0]"
)
CASES = {
    "rows": "y = x * self.rows[0]\nreturn self.head(y.sin() * self.rows[1])",
    "transposed": "y = (x @ self.rows.t()).sin() @ self.rows\nreturn self.head(y * self.rows[0])",
    "split": "a, b = self.rows.unbind(0)\nc = a.view(2, 4).view(-1)\n"
    "return self.head((x * a).sin() * b * c)",
    "views of one another": "y = (x @ self.turned).sin() @ self.rows\n"
    "return self.head(y * self.first)",
    "expanded": "y = x * self.first.expand(6, 8)\nreturn self.head(y.sin() * self.first[:1])",
    "made in forward": "c = torch.tensor([[2.0] * 8, [30.0] * 8])\n"
    "return self.head((x * c[0]).sin() * c[1])",
}


if torch.__version__ < "2.13":  # refused while it is traced
    del CASES["expanded"]


@pytest.mark.parametrize("budget", ["1GB", "lowest"])
@pytest.mark.parametrize("forward", CASES.values(), ids=CASES)
def test_each_view_is_itself(forward: str, budget: str) -> None:
    """Two rows of one attribute were one value, which the last one made: silently wrong."""
    assert_right(make_pair_of(model_source(BODY + forward, init=INIT), budget, "per-layer"))


def test_what_is_read_twice_is_written_once() -> None:
    pair = make_pair_of(model_source(BODY + CASES["rows"], init=INIT), "1GB", "per-layer")
    assert pair.text.count("torch.tensor(") == 1
