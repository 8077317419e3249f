"""A batch of 1, where eager treats it otherwise: the original forward runs it, with a warning."""

from __future__ import annotations

import pytest
import torch
from varying import assert_as_eager, varying
from varying_models import SHIFTED, one_line

from remat_gen.verification.compare import Match, compare

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


ASKS = {
    "one": "x.shape[0] == 1",
    "one or none": "y.flatten().shape[0] <= 32",
    "more than one": "not x.shape[0] > 1",
    "how it lies": "y.t().is_contiguous()",
}


@pytest.mark.parametrize("asks", ASKS.values(), ids=ASKS)
@pytest.mark.parametrize("looks", [True, False])
def test_what_forward_asks_of_one_row_is_no_kernels_question(asks: str, *, looks: bool) -> None:
    """Where it looks at values Dynamo does not trace, and torch had taken two for the least."""
    look = "if y.sum().item() > 1e9:\n            raise ValueError\n        " if looks else ""
    body = (
        f"y = self.up(x)\n        {look}y = y * 3 if {asks} else y\n        y = self.down(y.sin())"
    )
    planned = varying(
        SOURCE.replace("y = self.down(self.up(x).sin())", body).replace(".squeeze()", "")
    )
    assert str(planned.length) == "2 <= batch <= 6"
    assert_as_eager(planned, 2)
    with pytest.warns(UserWarning, match=r"right from 2 on; 1 runs by forward_eager, unplanned"):
        assert_as_eager(planned, 1)


def test_what_kernels_ask_of_one_row_is_right_beside_looks_too() -> None:
    look = "y = self.up(x)\n        if y.sum().item() > 1e9:\n            raise ValueError"
    turned = (
        "y = self.down(y.view(-1, 4, 8).transpose(0, 1).reshape(4, -1).T.reshape(-1, 32).sin())"
    )
    source = SOURCE.replace(
        "y = self.down(self.up(x).sin()).squeeze()", f"{look}\n        {turned}"
    )
    planned = varying(source)
    assert str(planned.length) == "batch <= 6"
    for number in (6, 2, 1):
        assert_as_eager(planned, number)


def test_rows_of_longer_ones_may_be_fewer() -> None:
    planned = varying(SHIFTED)
    assert str(planned.length) == "2 <= batch <= 6"
    for number in (6, 5, 2):
        assert_as_eager(planned, number)
    with pytest.warns(UserWarning, match=r"right from 2 on; 1 runs by forward_eager, unplanned"):
        assert_as_eager(planned, 1)


PARTS = {
    "a stride as long as the batch": "torch.randn(17, 17)[:, :-1]",
    "rows that are one": "torch.randn(16).expand(17, 16)",
    "every second number": "torch.randn(17, 32)[:, ::2]",
}


@pytest.mark.parametrize("given", PARTS.values(), ids=PARTS)
def test_strides_are_the_examples_whatever_the_batch(given: str) -> None:
    forward = "return (self.lin(x[:, :8]) * x.stride(0)).sin().sum()"
    planned = varying(one_line("", forward, f"({given},)"))
    assert str(planned.length) == "2 <= batch <= 17"
    for number in (17, 16, 2):
        assert_as_eager(planned, number)


def test_what_is_no_batch_is_refused_as_ever() -> None:
    planned = varying(SOURCE)
    for wrong in (3, torch.tensor(1.0)):
        with pytest.raises(ValueError, match=r"x is .*planned for float32"):
            planned.planned.model(wrong)


BROADCAST = """\
import torch
from torch import nn


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x, scale)
        return x * scale

    @staticmethod
    def backward(ctx, d_y):
        x, scale = ctx.saved_tensors
        return d_y * scale, (d_y * x).sum(0, keepdim=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Parameter(torch.randn(1, 1, 8))
        self.table = nn.Parameter(torch.randn(1, 3, 8))
        self.scale = nn.Parameter(torch.randn(1, 3, 8))

    def forward(self, x):
        x = Scale.apply(x.sin(), self.scale) * self.table
        rows = torch.cat((self.first.expand(x.shape[0], 1, 8), x), 1)
        return -(rows * rows.detach().floor().clamp(0, 0)).sum()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(6, 3, 8),)
"""


def test_what_one_row_was_not_broadcast_to_keeps_the_signs_of_zeros() -> None:
    planned = varying(BROADCAST)
    assert str(planned.length) == "batch <= 6" and "sum_broadcast(" in planned.text
    eager, steps = planned.eager(1), planned.steps(1)
    signs = {
        n.partition(",")[0]: g.signbit().any() for (k, n), g in eager[0].items() if "grad" in k
    }
    assert signs["first"] and signs["table"], "a sum of one row would have no -0.0"
    assert not signs["scale"], "a user's own backward sums one row, too"
    for wanted, got in zip(eager, steps, strict=True):
        for key in wanted:
            assert compare(*key, wanted[key], got[key]).match is Match.BITWISE, key
    assert_as_eager(planned, 2)
    assert_as_eager(planned, 6)


ATTENTION = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.queries = nn.Linear(32, 128)
        self.others = nn.Linear(32, 256)
        self.out = nn.Linear(64, 32)
        self.turned = nn.Linear(5, 32)

    def forward(self, x):
        q, k, v = self.queries(x), *self.others(x).chunk(2, -1)
        q, k, v = (t.view(*t.shape[:2], 2, 64).transpose(1, 2) for t in (q, k, v))
        h = (q @ k.mT).softmax(-1) @ v
        again = torch.einsum("bhid,bhjd->bhij", q, k).softmax(-1)
        h = h + torch.einsum("bhij,bhjd->bhid", again, v)
        return self.out(h.sum(1)).mT @ x, self.turned(x.mT)


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 5, 32),)
"""


def test_products_are_handed_the_strides_of_views_that_one_row_makes_of_copies() -> None:
    planned = varying(ATTENTION)
    assert str(planned.length) == "batch <= 4" and planned.text.count("copy_matrices(") > 6
    for number in (1, 2, 4):
        assert_as_eager(planned, number)


CHANNELS_LAST = """\
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Linear(16, 64)
        self.scale = nn.Parameter(torch.ones(1, 64, 1, 1))
        self.mixed = nn.Conv2d(64, 128, 1)

    def forward(self, x):
        y = self.tokens(x).mT.reshape(-1, 64, 7, 7)
        y = (y - y.mean(1, keepdim=True)) / y.std(1, keepdim=True) * self.scale
        return self.mixed(y).sin().sum((2, 3)), self.mixed(y)


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 49, 16),)
"""


def test_layouts_that_a_single_row_has_alone_are_those_of_eager() -> None:
    planned = varying(CHANNELS_LAST)
    assert str(planned.length) == "batch <= 4"
    for number in (1, 2, 4):
        assert_as_eager(planned, number)
