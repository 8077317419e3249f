"""Arguments by keyword are written, whatever form an operation is written in."""

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
        return ({result}).float().square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 4, 4),)
"""
RESULTS = (
    "torch.addmm(h[0], x[0], h[1], beta=0.5, alpha=2.0)",
    "torch.addmm(h[0], h[2], h[1], alpha=3)",
    "torch.baddbmm(h, x, h, beta=0.5, alpha=2.0)",
    "h.bfloat16().sum(0, dtype=torch.float32)",
    "h.sum(0, dtype=torch.float64) * 1.1",
    "h.sum((0, 1), keepdim=True, dtype=torch.float64) * 1.1",
    "h * (x * 100).to(torch.uint8).sum(0, dtype=torch.uint8)",
    "h.mean(1, dtype=torch.float64) * 1.1",
    "h.cumsum(1, dtype=torch.float64) * 1.1",
    "h.softmax(-1, dtype=torch.float64) * 1.1",
    "h.prod(dtype=torch.float64) * 1.1",
    "torch.rsub(h, x, alpha=3)",
    "torch.std(h, 1, correction=0)",
)
LINEAR = """
class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias):
        ctx.save_for_backward(x, weight)
        return x @ weight.t() + bias

    @staticmethod
    def backward(ctx, d):
        x, weight = ctx.saved_tensors
        return d.mm(weight), d.t().mm(x), d.sum(0, dtype=torch.float64) * 1.1


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        h = Linear.apply(x, self.one.weight, self.one.bias).tanh()
        return Linear.apply(h, self.two.weight, self.two.bias).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(64, 4),)
"""
RESHAPED = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.Parameter(torch.randn(2, 2, 4))
        self.bias = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return F.linear(x, self.heads.view(4, 4), self.bias).tanh()


def build_model():
    return nn.Sequential(Layer(), Layer(), Layer())


def example_inputs():
    return (torch.randn(3, 5, 4),)
"""


@pytest.mark.parametrize("result", RESULTS)
def test_what_is_said_by_keyword(tmp_path: Path, result: str) -> None:
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(result=result)))


def test_a_linear_layers_gradients_of_a_users_own(tmp_path: Path) -> None:
    """They look like autograd's, but for the type that the bias is summed in."""
    emitted = emit(tmp_path, HEAD + LINEAR)
    assert "float64" in emitted.text
    assert_bitwise(emitted)


def test_a_weight_of_three_dimensions_seen_as_a_matrix(tmp_path: Path) -> None:
    emitted = emit(tmp_path, HEAD + RESHAPED)
    assert "linear_backward(" in emitted.text
    assert_bitwise(emitted)
