"""An operator whose text is run twice in one process stays the one that the first run holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from remat_gen.capture.load.load import import_file

OPERATOR = """
import torch


@torch.library.custom_op("remat_once::powered", mutates_args=())
def powered(x: torch.Tensor) -> torch.Tensor:
    return x**{power}


@powered.register_fake
def _(x):
    return torch.empty_like(x)


def gradient(ctx, d):
    return d * ctx.factor


def keep(ctx, inputs, output):
    ctx.factor = {power}


powered.register_autograd(gradient, setup_context=keep)
"""


def imported(folder: Path, name: str, text: str) -> Any:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return import_file(path, text).powered


def test_the_same_code_is_one_operator_wherever_it_stands(tmp_path: Path) -> None:
    first = imported(tmp_path, "first.py", OPERATOR.format(power=2))
    moved = "# a generated file has a header\n\n" + OPERATOR.format(power=2)
    again = imported(tmp_path, "again.py", moved)
    assert again is first
    x = torch.full((3,), 5.0, requires_grad=True)
    first(x).sum().backward()
    assert torch.equal(first(x), torch.full((3,), 25.0))
    assert x.grad is not None and torch.equal(x.grad, torch.full((3,), 2.0))


def test_other_code_is_another_operator(tmp_path: Path) -> None:
    first = imported(tmp_path, "two.py", OPERATOR.format(power=2))
    other = imported(tmp_path, "three.py", OPERATOR.format(power=3))
    assert other is not first
    assert torch.equal(other(torch.full((3,), 5.0)), torch.full((3,), 125.0))


READS = """
import torch

SCALE = {scale}


def scaled(x):
    return x * SCALE


@torch.library.custom_op("remat_once::powered", mutates_args=())
def powered(x: torch.Tensor) -> torch.Tensor:
    return scaled(x)
"""


def test_the_same_code_that_reads_another_value_is_another_operator(tmp_path: Path) -> None:
    """As of a file that was edited and loaded again."""
    first = imported(tmp_path, "five.py", READS.format(scale=2.0))
    assert imported(tmp_path, "six.py", READS.format(scale=2.0)) is first
    other = imported(tmp_path, "five.py", READS.format(scale=3.0))
    assert torch.equal(other(torch.ones(3)), torch.full((3,), 3.0))


def test_functions_that_call_each_other_are_another_operator(tmp_path: Path) -> None:
    text = READS.format(scale=2.0).replace("return x * SCALE", "return x if x.sum() else scaled(x)")
    first = imported(tmp_path, "seven.py", text)
    assert imported(tmp_path, "eight.py", text) is not first


def test_torch_s_own_function_is_put_back(tmp_path: Path) -> None:
    define = torch.library.custom_op
    imported(tmp_path, "four.py", OPERATOR.format(power=4))
    assert torch.library.custom_op is define
