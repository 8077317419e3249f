"""Branches that values decide: planned as the example takes them, and compared in each step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right
from torch import Tensor, nn

from remat_gen.ir.errors import TraceError

HEAD = "x = self.body(x)\n"
SIX = "(torch.randn(6, 8), torch.arange(6) % 4)"
Spoil = Callable[[nn.Module, list[Tensor]], None]


def spoil_input(value: float) -> Spoil:
    def spoil(_model: nn.Module, inputs: list[Tensor]) -> None:
        inputs[0][1, 1] = value

    return spoil


def spoil_labels(_model: nn.Module, inputs: list[Tensor]) -> None:
    inputs[1][2] = 7


def spoil_head(value: float) -> Spoil:
    def spoil(model: nn.Module, _inputs: list[Tensor]) -> None:
        with torch.no_grad():
            model.get_parameter("head.weight").fill_(value)

    return spoil


# forward, the line that raises, and how to bring that about
CASES: dict[str, tuple[str, str, Spoil]] = {
    "if bad: raise": (
        "if x.abs().max() > 99:\n    raise ValueError('large')\n" + HEAD + "return self.head(x)",
        "if x.abs",
        spoil_input(100.0),
    ),
    "if not isfinite: clamp": (
        HEAD + "if not torch.isfinite(x).all():\n    x = x.clamp(-9, 9)\nreturn self.head(x)",
        "if not torch.isfinite",
        spoil_input(torch.nan),
    ),
    "assert": (
        HEAD + "y = self.head(x)\nassert y.isfinite().all(), 'overflow'\nreturn y",
        "assert",
        spoil_head(torch.inf),
    ),
    "labels": (
        "if labels.max() >= 4:\n    raise IndexError('label')\n"
        + HEAD
        + "return F.cross_entropy(self.head(x), labels)",
        "if labels.max",
        spoil_labels,
    ),
    "an item that is compared": (
        HEAD + "y = self.head(x)\nloss = y.square().mean()\n"
        "if loss.item() > 1e3 or 2 * 10**8 < labels.max().item():\n"
        "    raise ValueError(f'{loss.item():.1f}')\nreturn loss",
        "if loss.item",
        spoil_head(1e4),
    ),
    "numbers that are not 0": (
        HEAD + "if labels.sum():\n    x = 2 * x\nreturn self.head(x)",
        "if labels.sum",
        lambda _model, inputs: inputs[1].zero_(),
    ),
    "equal": (
        HEAD + "if torch.equal(labels, labels.abs()):\n    x = 2 * x\nreturn self.head(x)",
        "if torch.equal",
        lambda _model, inputs: inputs[1].neg_(),
    ),
    "all close": (
        HEAD + "if torch.allclose(x, x + 1e-9):\n    x = 2 * x\nreturn self.head(x)",
        "if torch.allclose",
        spoil_input(torch.nan),
    ),
    "a condition of torch's": (
        HEAD + "y = self.head(x)\n"
        "return F.gaussian_nll_loss(y, y.detach() + 1, labels[:, None].float() + 1)",
        "return F.gaussian_nll_loss",
        lambda _model, inputs: inputs[1].sub_(9),
    ),
    "torch._check": (
        "torch._check_tensor_all(labels < 4)\n" + HEAD + "return self.head(x)",
        "torch._check_tensor_all",
        spoil_labels,
    ),
    "written over behind the look": (
        HEAD + "y = x * 2\nif (y > 1e4).any():\n    y = y / 2\ny.mul_(3)\nreturn self.head(y)",
        "if (y",
        spoil_input(1e30),
    ),
}


def planned(case: str, budget: str = "lowest") -> Pair:
    text = model_source(CASES[case][0], arguments="self, x: Tensor, labels: Tensor", inputs=SIX)
    return make_pair_of(text, budget, "per-layer")


@pytest.mark.parametrize("case", CASES)
def test_the_examples_branch_is_eagers(case: str) -> None:
    assert_right(planned(case))


@pytest.mark.limit(
    "conditions on values that go otherwise than in the example: `if bad: raise`, `assert`",
    "an error with the line; `forward_eager()` goes on. On a GPU it comes when backward ends",
)
@pytest.mark.parametrize("case", CASES)
def test_another_branch_is_an_error_with_the_line(case: str) -> None:
    pair = planned(case)
    _, model = pair.models()
    args, _ = pair.inputs()
    spoiled = [tensor.clone() for tensor in args]
    model(*args)
    CASES[case][2](model, spoiled)
    text = Path(pair.original.__file__ or "").read_text(encoding="utf-8").splitlines()
    line = next(i for i, words in enumerate(text, 1) if words.strip().startswith(CASES[case][1]))
    with pytest.raises(ValueError, match=rf"the condition in model\.py:{line} is (True|False)"):
        model(*spoiled)


def test_a_check_is_never_run_again() -> None:
    """Nor is it left out where a smaller budget runs the layer twice."""
    pair = planned("if not isfinite: clamp")
    assert pair.reruns
    assert pair.text.count("  check_value(") == 1


OBSERVER = """
low = self.head.weight.detach().min()
low = low if self.low == float("inf") else self.low + 0.01 * (low - self.low)
self.low.copy_(low)
return F.linear(self.body(x), torch.maximum(self.head.weight, self.low), self.head.bias)
"""


def test_a_buffer_in_which_each_step_writes_the_same_until_weights_change() -> None:
    """An observer of a weight: with an optimizer the second step was refused."""
    init = "self.register_buffer('low', torch.tensor(-1.0))"
    pair = make_pair_of(model_source(OBSERVER, init=init), "lowest", "per-layer")
    args, _ = pair.inputs()
    left = []
    for model in pair.models():
        for _ in range(3):
            torch.manual_seed(3)
            model(*args).square().mean().backward()
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.sub_(0.1 * parameter.grad)
        left.append(model.low)
    assert torch.equal(*left)


FROZEN = "self.gamma = nn.Parameter(torch.tensor([12.0]), requires_grad=False)"
SCALED = HEAD + "return self.gamma.item() - self.head(x) / float(self.gamma)"


def test_a_frozen_parameters_number_is_compared() -> None:
    """RotatE's margin: a number while it is not trained, and an error where it is another."""
    pair = make_pair_of(model_source(SCALED, init=FROZEN), "lowest", "per-layer")
    assert_right(pair)
    _, model = pair.models()
    args, _ = pair.inputs()
    model(*args)
    model.gamma.data.fill_(9.0)
    with pytest.raises(ValueError, match=r"gamma\.data is float32\[1\] \[9\.0\], planned for .*12"):
        model(*args)


def test_a_trained_parameters_number_is_none() -> None:
    text = model_source(SCALED, init=FROZEN.replace("False", "True"))
    with pytest.raises(TraceError, match="becomes a Python number"):
        make_pair_of(text, "lowest", "per-layer")
