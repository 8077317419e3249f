"""What no operation of a trace tells of: it was planned, and other numbers came, without a word."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tracing import LINEAR, source, traced

from remat_gen.ir.errors import TraceError

REVERSE = """
class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient
"""


@pytest.mark.limit(
    "an autograd function whose result is a view of an input or a parameter and is returned",
    "refused with its name; return a `clone()` of that",
)
@pytest.mark.parametrize("of", ["x", "self.lin.bias", "self.lin.weight.t()"])
def test_a_function_that_returns_a_view_of_what_was_given(tmp_path: Path, of: str) -> None:
    """AOTAutograd makes such a view anew, past the function: its backward did not run."""
    inputs = "(torch.randn(4, 8, requires_grad=True),)"
    forward = f"return self.lin(x), Reverse.apply({of})"
    with pytest.raises(TraceError, match=r"the autograd function Reverse .* clone"):
        traced(tmp_path, source(LINEAR, forward, inputs, before=REVERSE))
    text = source(
        LINEAR, f"return self.lin(x), Reverse.apply({of}).clone()", inputs, before=REVERSE
    )
    assert traced(tmp_path, text).graph.operations


@pytest.mark.limit(
    "`.data = …` in `forward`, of a parameter (a momentum encoder's) as of what it makes",
    "refused; write into it by `copy_()`, or give it a name of its own",
)
@pytest.mark.parametrize(
    "forward",
    [
        "h = self.lin(x)\nh.data = h.data * 2\nreturn h.sum()",
        "b = self.lin.bias\nb.data = b.data * 0.9\nreturn self.lin(x)",
    ],
)
def test_data_that_is_set(tmp_path: Path, forward: str) -> None:
    descriptor = torch.Tensor.data
    with pytest.raises(TraceError, match=r"sets the \.data of a tensor"):
        traced(tmp_path, source(LINEAR, forward))
    assert torch.Tensor.data is descriptor
    assert "data" not in vars(torch.Tensor)
