"""Kernels that lay results out like a transposed input, where the trace has them contiguous."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import torch
from emitting import HEAD, assert_bitwise, emit

MODEL = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.out = nn.Linear(8, 8)

    def forward(self, x):
        p = self.lin(x).transpose(1, 2)
        return {result}


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(6, 16, 8),)
"""
RESULTS = (
    "F.mse_loss(p, x.transpose(1, 2))",
    "F.mse_loss(p, x.transpose(1, 2).contiguous())",
    "F.smooth_l1_loss(p, x.transpose(1, 2), beta=0.5)",
    "F.huber_loss(p, x.transpose(1, 2))",
    "F.cross_entropy(p, x.softmax(-1).transpose(1, 2))",
    "self.out(F.hardswish(p).transpose(1, 2)).square().mean()",
    *(f"F.{name}(p).abs().mean()" for name in "elu celu selu softplus hardtanh relu6".split()),
    "F.hardsigmoid(p).square().mean()",
    "p.softmax(1).square().mean()",
    "p.log_softmax(1).abs().mean()",
)
DRAWS = ("F.alpha_dropout(p, 0.2, True).abs().mean()", "(p * torch.bernoulli(p.sigmoid())).mean()")
IN_PLACE = "(p * torch.{}_like(p).{}).abs().mean()"


@pytest.mark.parametrize("result", RESULTS)
def test_gradients(tmp_path: Path, result: str) -> None:
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(result=result)))


@pytest.mark.parametrize(
    "result",
    [
        *DRAWS,
        IN_PLACE.format("empty", "bernoulli_(0.5)"),
        IN_PLACE.format("empty", "uniform_()"),
        IN_PLACE.format("empty", "normal_()"),
        IN_PLACE.format("zeros", "bernoulli_(0.5)"),
        IN_PLACE.format("ones", "bernoulli_(p.detach().sigmoid())"),
    ],
)
def test_what_is_drawn(tmp_path: Path, result: str) -> None:
    """Eager draws in the order of memory."""
    assert_bitwise(emit(tmp_path, HEAD + MODEL.format(result=result)))


PRODUCT = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)

    def forward(self, x):
        y = torch.relu(self.lin(x))
        rows = y.view(4, 4, 4)
        return torch.bmm({one}, {other}).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(2, 2, 4, 4),)
"""
SWAPPED = ("rows.transpose(0, 1)", "rows.transpose(1, 2)", "rows.transpose(0, 2)", "rows.mT")


@pytest.mark.parametrize("swapped", SWAPPED)
def test_a_product_of_what_is_transposed(tmp_path: Path, swapped: str) -> None:
    """All sides are as long, so that another pair of them swapped would be another result."""
    text = HEAD + PRODUCT.format(one="rows", other=swapped)
    assert_bitwise(emit(tmp_path, text))
    text = HEAD + PRODUCT.format(one=swapped, other="rows.sigmoid()")
    assert_bitwise(emit(tmp_path, text))


ORDERED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(8, 8)

    def forward(self, x):
        y = self.lin(x).view(4, 6, 2, 4){views}
        return torch.sin(y * y.sigmoid()).mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 6, 8),)
"""


@pytest.mark.parametrize(
    ("views", "written"),
    [
        (".permute(0, 3, 1, 2).transpose(1, -1)", "permute(0, 2, 1, 3)"),
        (".transpose(-1, 0).permute(1, 3, 0, 2).permute(-1, 1, 2, 0)", "permute(2, 0, 3, 1)"),
    ],
)
def test_dimensions_that_are_reordered_twice(tmp_path: Path, views: str, written: str) -> None:
    """An einsum takes a tensor to and fro: what comes of it is one `permute`."""
    found = emit(tmp_path, HEAD + ORDERED.format(views=views))
    _, _, planned = ast.unparse(ast.parse(found.text)).partition("class PlannedBlock")
    assert written in planned
    assert torch.equal(eval(f"NUMBERS{views}"), eval(f"NUMBERS.{written}"))
    assert not re.search(r"\.(permute|transpose)\([^)]*\)\.(permute|transpose)", planned)
    assert_bitwise(found)


NUMBERS = torch.arange(192).view(4, 6, 2, 4)
