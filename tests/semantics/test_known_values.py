"""Values that follow from no input, parameter or buffer that changes: Python may read them."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

BODY = "x = self.body(x)\n"
CONSTANT = {
    "a list of positions": "for i in torch.arange(3).tolist():\n    x = x * (i + 1)\n"
    "return self.head(x)",
    "rates": "for rate in torch.linspace(0, 0.2, 3):\n    if rate > 0.05:\n"
    "        x = x * (1 - rate.item())\nreturn self.head(x)",
    "a mask": "on = torch.eye(8)[1:4].any(0)\nreturn (x[:, on] * x.flatten()[:3]).sum()",
    "a mask of two dimensions": "return (x[:, :6][torch.tril(torch.ones(6, 6)).bool()] ** 2).sum()",
    "positions": "at = torch.nonzero(torch.arange(8) % 2).squeeze(1)\nreturn x[:, at].sum()",
    "kinds": "for kind in (torch.arange(6) // 2).unique():\n    x = x * (kind + 1)\n"
    "kinds, which, counts = torch.tensor([2.5, 1.5, 2.5]).unique(return_inverse=True, "
    "return_counts=True)\nreturn (x[:, which] * (kinds * counts).sum()).sum()",
    "an array": "import numpy as np\nweights = np.asarray(torch.arange(3.0))\n"
    "return self.head(x * float(weights.sum()))",
    "sizes": "end = torch.tensor([2, 3]).cumsum(0)\n"
    "return self.head(torch.cat([x[:, end[0] :], x[:, : end[0]]], 1))",
    "rows by number": "for i in torch.arange(3):\n    x = x + x[i]\nreturn self.head(x)",
    "one of several": "if torch.tensor(2) in (1, 2):\n    x = x * 2\nreturn self.head(x)",
}
# what there is of buffers, forward, what another buffer is
BUFFERS = {
    "a switch": ("torch.tensor(True)", "if self.own:\n    x = x * 2", "torch.tensor(False)"),
    "sizes": (
        "torch.tensor([3, 5])",
        "a, b = x.split(self.own.tolist(), 1)\nx = torch.cat([b, a], 1)",
        "torch.tensor([5, 3])",
    ),
    "a mask": (
        "torch.arange(8) % 2 == 0",
        "x = torch.cat([x[:, self.own], x[:, ~self.own]], 1)",
        "torch.arange(8) % 2 == 1",
    ),
}


@pytest.mark.parametrize("forward", CONSTANT.values(), ids=CONSTANT)
def test_constants_are_read(forward: str) -> None:
    pair = make_pair_of(model_source(BODY + forward), "lowest", "per-layer")
    assert_right(pair)
    assert "check_value(" not in pair.text


@pytest.mark.parametrize("case", BUFFERS)
def test_a_buffers_values_are_planned_for(case: str) -> None:
    value, forward, other = BUFFERS[case]
    init = f"self.register_buffer('own', {value})"
    text = model_source(f"{BODY}{forward}\nreturn self.head(x)", init=init)
    pair = make_pair_of(text, "lowest", "per-layer")
    assert_right(pair)
    _, model = pair.models()
    args, _ = pair.inputs()
    model(*args)
    model.get_buffer("own").copy_(eval(other))
    with pytest.raises(ValueError, match=r"own is (bool|int64)\[.*planned for"):
        model(*args)


ROW = model_source(
    BODY + "return self.head(x[i] + x[:, i].sum())",
    arguments="self, x: torch.Tensor, i: torch.Tensor",
    inputs="(torch.randn(6, 8), torch.tensor(2))",
)


def test_an_inputs_number_picks_a_row() -> None:
    """Whichever it is: it stays a tensor."""
    pair = make_pair_of(ROW, "lowest", "per-layer")
    assert_right(pair)
    original, planned = pair.models()
    args, _ = pair.inputs()
    for number in (0, 5, -1):
        losses = []
        for model in (original, planned):
            torch.manual_seed(1)
            losses.append(model(args[0], torch.tensor(number)).sum())
        assert torch.equal(*losses)
