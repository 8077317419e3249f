"""Tensors that are plain attributes are written out, and read as what they are: whole, in parts.

Large ones are read where the model has them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pairs import make_pair_of, plan_file
from sources import model_source
from steps import assert_right, assert_same, run_steps
from torch import nn

from remat_gen.ir.errors import TraceError

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


LARGE = """
self.table = torch.arange(8000.0).view(8, 1000).cos().t()
self.places = torch.arange(8000).view(1000, 8) % 6
self.part = self.places[:, 1:7]
self.rope = Rope()
"""
ROPE = """
class Rope:
    def __init__(self) -> None:
        self.cos = torch.linspace(0.0, 1.0, 4200).view(6, 700)
"""
READ = {
    "as numbers": "return self.head(x + (self.table * 2).mean(0))",
    "transposed": "return self.head((x @ self.table.t()).sin() @ self.table)",
    "as an index": "return self.head(x[self.places].mean((0, 1)))",
    "two of one memory": "return self.head(x[self.places[0]][:, 0] + x[self.part[0]].mean())",
    "in an object": "return self.head(x * self.rope.cos.sum(1, keepdim=True))",
    "returned": "return self.head(x + self.table[0]), self.places, self.part.t()",
}


def large(forward: str, init: str = LARGE) -> str:
    return model_source(BODY + forward, init=init, prelude=ROPE)


@pytest.mark.parametrize("budget", ["1GB", "lowest"])
@pytest.mark.parametrize("forward", READ.values(), ids=READ)
def test_large_ones_are_read_in_the_model(forward: str, budget: str) -> None:
    """Nothing of them stands in the file."""
    pair = make_pair_of(large(forward), budget, "per-layer")
    assert_right(pair)
    assert "torch.tensor(" not in pair.text


OTHERS: dict[str, Callable[[nn.Module], object]] = {
    "written over": lambda model: model.table.neg_(),
    "past torch's count of versions": lambda model: model.table.data.neg_(),
    "another tensor": lambda model: setattr(model, "table", model.table + 1),
    "an equal one": lambda model: setattr(model, "table", model.table.clone()),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
@pytest.mark.parametrize("forward", ["as numbers", "transposed"])
def test_numbers_that_nobody_read_may_be_others(
    forward: str, change: Callable[[nn.Module], object]
) -> None:
    pair = make_pair_of(large(READ[forward]), "lowest", "per-layer")
    assert "sha256" not in pair.text.partition("HELD")[2].partition("}")[0]
    models = pair.models()
    assert_same(*(run_steps(model, pair, steps=1) for model in models))
    for model in models:
        change(model)
    assert_same(*(run_steps(model, pair) for model in models))


UNLIKE: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "longer": (
        lambda model: setattr(model, "table", model.table.repeat(2, 1)),
        r"table\.shape is Size \[2000, 8\], planned for Size \[1000, 8\]",
    ),
    "of another type": (
        lambda model: setattr(model, "table", model.table.double()),
        r"table\.dtype is torch\.float64, planned for torch\.float32",
    ),
    "with a gradient": (
        lambda model: model.table.requires_grad_(),
        r"table\.requires_grad is True, planned for False",
    ),
    "gone": (lambda model: delattr(model, "table"), r"table\.\S+ is not set, planned for "),
}


@pytest.mark.parametrize("behind_a_step", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize(("change", "told"), UNLIKE.values(), ids=UNLIKE)
def test_one_of_another_layout_is_named(
    change: Callable[[nn.Module], object], told: str, behind_a_step: bool
) -> None:
    pair = make_pair_of(large(READ["as numbers"]), "1GB", "per-layer")
    _, model = pair.models()
    if behind_a_step:
        run_steps(model, pair, steps=1)
    change(model)
    with pytest.raises(ValueError, match=told):
        run_steps(model, pair, steps=1)


HALVED = """

class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, table):
        ctx.table = table
        return x / 2

    @staticmethod
    def backward(ctx, d):
        return d / (2 if ctx.table.tolist()[0][0] > 0.5 else 3), None
"""
LOOKS = {
    "a number": "return self.head(x * self.table.tolist()[0][0] + self.table.mean(0))",
    "a branch": "y = x if self.table.mean() < 1 else -x\nreturn self.head(y * self.table.sum())",
    "in backward": "return self.head(Halved.apply(x, self.table) + self.table.mean(0))",
}


@pytest.mark.parametrize("behind_a_step", [False, True], ids=["before", "behind"])
@pytest.mark.parametrize("forward", LOOKS.values(), ids=LOOKS)
def test_numbers_that_were_read_are_compared(forward: str, behind_a_step: bool) -> None:
    source = model_source(BODY + forward, init=LARGE, prelude=ROPE + HALVED)
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)
    _, model = pair.models()
    if behind_a_step:
        run_steps(model, pair, steps=1)
    model.table.data.neg_()
    with pytest.raises(ValueError, match=r"table is float32\[1000, 8\] sha256 .*planned for"):
        run_steps(model, pair, steps=1)


COUNT = "self.register_buffer('count', torch.zeros(8, 999))\nself.table = self.count"
SHARED = {
    "of a buffer": f"{COUNT}[:6]",
    "a buffer by another name": COUNT,
    "of a parameter": "self.wide = nn.Linear(8, 1000)\nself.table = self.wide.weight.detach()",
}


@pytest.mark.parametrize("init", SHARED.values(), ids=SHARED)
def test_memory_that_may_be_written_is_refused(init: str, tmp_path: Path) -> None:
    path = tmp_path / "model.py"
    path.write_text(model_source(f"{BODY}return self.head(x).sum() * self.table.sum()", init=init))
    with pytest.raises(TraceError, match=r"self.table, which has the memory of self\.(count|wide)"):
        plan_file(path, "1GB", "per-layer")
