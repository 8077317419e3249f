"""What forward writes into stays laid out as it was: draws and views go by the order of memory."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, emit

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        h = self.lin(x)
        y = h.transpose(0, 1) * 2
        rows = torch.tensor([2, 0])
        {statement}
        return (F.dropout(y, 0.5) * x).square().mean(), y.stride()[0]


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 4, 4),)
"""
STATEMENTS = (
    "y.masked_fill_(x > 0, 0.5)",
    "y.index_add_(0, rows, x[:2])",
    "y.index_copy_(0, rows, x[:2])",
    "y.index_fill_(0, rows, 0.5)",
    "y.scatter_(0, rows.view(2, 1, 1).expand(2, 4, 4), 0.5)",
    "y.scatter_add_(0, rows.view(2, 1, 1).expand(2, 4, 4), x)",
    "y.tril_()",
    "y.cumsum_(1)",
    "y.clamp_(-1, 1).masked_fill_(x > 0, 0.0)",
    "y.mul_(x).add_(1)",
    "y[1:].mul_(x[1:])",
    "y.normal_()",
    "y.uniform_()",
    "y = y.detach().bernoulli_(0.5) * h",
    "m = torch.empty(4, 4).t().bernoulli_(0.5); y = y * m",
    "m = torch.ones(4, 4, 4); m.transpose(0, 2).bernoulli_(0.5); y = y * m",
    "m = torch.zeros(4, 4); m.t()[1:].bernoulli_(0.5); y = y * m",
    "m = torch.empty(4, 4).bernoulli_(0.5); y = y * m",
)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_what_is_drawn_behind_it(tmp_path: Path, statement: str) -> None:
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(statement=statement)))


def test_what_a_plain_tensor_is_added_to_may_be_written_again(tmp_path: Path) -> None:
    """Positional signals on self: forward reads them, and writes into what it makes."""
    text = MODEL.format(statement="y += self.signal; y += self.signal; y.relu_()")
    text = text.replace("(4, 4)\n\n", "(4, 4)\n        self.signal = torch.randn(4, 4)\n\n", 1)
    assert "self.signal = " in text
    assert_bitwise(emit(tmp_path, HEAD + text))


def test_a_view_that_goes_by_the_layout(tmp_path: Path) -> None:
    """Of the trace's own tensor it would be impossible, or other numbers."""
    forward = "y.masked_fill_(x > 0, 0.0); y = y.transpose(0, 1).view(4, 16).view(4, 4, 4)"
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(statement=forward)))
    forward = "y.masked_fill_(x > 0, 0.0); y = y.as_strided((4, 4, 4), (4, 1, 16)) * 1.0"
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(statement=forward)))
