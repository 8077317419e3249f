"""Stages of a pipeline that hand on floats without a gradient beside the stream: a mask."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import remat_gen

SOURCE = """
import torch
from torch import Tensor, nn

WIDTH = 16


class Stage(nn.Module):
    def __init__(self, first: bool) -> None:
        super().__init__()
        self.first, self.layer = first, nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None):
        if mask is None:
            mask = torch.ones(x.shape[1], WIDTH).tril()
        x = x + self.layer(x) * mask
        return (x, mask) if self.first else x.square().mean()


def build_stage(stage: int, stages: int) -> nn.Module:
    torch.manual_seed(stage)
    return Stage(stage == 0)


def stage_inputs(stage: int, stages: int):
    x = torch.randn(8, WIDTH, WIDTH, requires_grad=stage > 0)
    return (x, torch.ones(WIDTH, WIDTH)) if stage else (x,)
"""


def imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(f"masked_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def step(first: torch.nn.Module, last: torch.nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    torch.manual_seed(3)
    stream, mask = first(x)
    handed = stream.detach().requires_grad_()
    loss = last(handed, mask.detach())
    loss.backward()
    stream.backward(handed.grad)
    parameters = (*first.parameters(), *last.parameters())
    return [loss.detach(), *(p.grad for p in parameters if p.grad is not None)]


def test_a_mask_is_handed_on(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    remat_gen.generate_stages(path, stages=2, micro_batches=2, budget="1MB")
    files = [path, *(tmp_path / f"net_stage{i}_remat.py" for i in range(2))]
    original, *planned = map(imported, files)
    x = torch.randn(8, 16, 16)
    wanted = step(*(original.build_stage(i, 2).train() for i in range(2)), x)
    found = step(*(planned[i].build_stage(i, 2).train() for i in range(2)), x)
    assert len(wanted) == 9
    assert all(map(torch.equal, wanted, found))


def test_one_that_the_example_makes_with_a_gradient(tmp_path: Path) -> None:
    """As the error advised: the first step of the second stage failed, and the other one hung."""
    path = tmp_path / "net.py"
    with_gradient = "torch.ones(WIDTH, WIDTH, requires_grad=True)"
    path.write_text(SOURCE.replace("torch.ones(WIDTH, WIDTH)", with_gradient), encoding="utf-8")
    with pytest.raises(remat_gen.RematError, match="make it without requires_grad"):
        remat_gen.generate_stages(path, stages=2, micro_batches=2, budget="1MB")


def test_what_a_device_needs_is_said_with_all_that_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text(SOURCE, encoding="utf-8")
    asked: dict[str, Any] = {"stages": 1, "micro_batches": 1}
    path.write_text(SOURCE.replace("if self.first", "if False"), encoding="utf-8")
    with pytest.raises(remat_gen.InfeasibleBudgetError) as error:
        remat_gen.generate_stages(path, **asked, budget="60KB")
    smallest = error.value.smallest_bytes
    assert f"{smallest} bytes in all" in str(error.value)
    remat_gen.generate_stages(path, **asked, budget=smallest)
    with pytest.raises(remat_gen.RematError, match="give what one device has: --budget"):
        remat_gen.generate_stages(path, stages=2, micro_batches=2)
