"""Tensors whose class answers for torch's functions: a plan calls these, and would not ask it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import make_pair_of
from torch import nn

from remat_gen.ir.errors import TraceError

ROUNDED = """
import torch
import torch.nn.functional as F
from torch import nn


class Rounded(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            args = (args[0], args[1].as_subclass(torch.Tensor).detach().round(), *args[2:])
        return super().__torch_function__(func, types, args, kwargs or {})


def rounded(tensor):
    return tensor.detach().as_subclass(Rounded)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.scale = nn.Linear(8, 8), torch.ones(8)

    def forward(self, x):
        return (F.gelu(self.layer(x)) * self.scale).square().mean()


def build_model():
    return Net()


def build_rounded():
    model = Net()
    model.layer.weight = nn.Parameter(rounded(model.layer.weight))
    return model


def build_held():
    model = Net()
    model.scale = rounded(model.scale)
    return model


def example_inputs():
    return (torch.randn(4, 8),)


def example_rounded():
    return (rounded(torch.randn(4, 8)),)
"""


@pytest.mark.limit("a tensor of a class with `__torch_function__`", "refused, with its name")
@pytest.mark.parametrize(
    ("model", "inputs", "name"),
    [
        ("build_rounded", "example_inputs", "layer.weight"),
        ("build_held", "example_inputs", "scale"),
        ("build_model", "example_rounded", "x"),
    ],
)
def test_a_class_that_answers_for_functions_is_refused(model: str, inputs: str, name: str) -> None:
    with pytest.raises(TraceError, match=rf"{name} is a Rounded, whose __torch_function__"):
        make_pair_of(ROUNDED, model=model, inputs=inputs)


def weight(module: Any, model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    model.layer.weight = nn.Parameter(module.rounded(model.layer.weight))
    return model, x


def an_input(module: Any, model: nn.Module, x: torch.Tensor) -> tuple[nn.Module, torch.Tensor]:
    return model, module.rounded(x)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (weight, r"layer is Linear\(weight: float32\[8, 8\], a Rounded, .*, planned for Linear"),
        (an_input, r"x is float32\[4, 8\], a Rounded on cpu, planned for float32"),
    ],
)
@pytest.mark.parametrize("behind", [False, True])
def test_one_in_place_of_a_plain_tensor_is_named(
    change: Callable[..., Any], said: str, behind: bool
) -> None:
    pair = make_pair_of(ROUNDED)
    model, x = pair.planned.build_model().train(), torch.randn(4, 8)
    if behind:
        model(x).backward()
    with pytest.raises(ValueError, match=said):
        (changed := change(pair.planned, model, x))[0](changed[1])
