"""Dropout of so many elements that masks are drawn as integers: eager's, also drawn again."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

import remat_gen

MODEL = '''
"""Dropout on rows, on images that lie with their channels last, and in place."""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 32, 3, padding=1)
        self.up, self.down = nn.Linear(32, 96), nn.Linear(96, 32)
        self.drop, self.in_place = nn.Dropout(0.15), nn.Dropout(0.3, inplace=True)

    def forward(self, x):
        x = self.drop(F.gelu(self.conv(x)))
        rows = x.flatten(2).transpose(1, 2)
        for _ in range(2):
            rows = rows + self.in_place(self.down(self.drop(F.silu(self.up(rows)))))
        return rows.square().mean()


def build_model():
    return Net().to(memory_format=torch.channels_last)


def example_inputs():
    return (torch.randn(12, 3, 16, 16).to(memory_format=torch.channels_last),)
'''


@pytest.mark.parametrize("pins", [{}, {"recompute": ["*mask*"]}, {"keep": ["*mask*"]}], ids=str)
def test_masks_of_any_size_are_eager_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pins: dict[str, list[str]]
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "large_masks.py"
    path.write_text(MODEL, encoding="utf-8")
    planned = remat_gen.generate(path, budget="75%", strategy="rotor", **pins)  # type: ignore[arg-type]
    assert planned.output is not None
    assert "draw_mask(" in planned.text
    assert ("rerun_random" in planned.text) == ("recompute" in pins) or not pins
    report = remat_gen.verify(planned.output)
    assert report.ok and report.bitwise
    ((_, smaller),) = report.smaller
    assert smaller.bitwise


def test_streams_of_several_steps_are_eager_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Masks of 294,912 elements are drawn as integers, of 98,304 too, of a batch of 2 by torch."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "masks_in_turn.py"
    path.write_text(MODEL, encoding="utf-8")
    remat_gen.generate(path, budget="75%", strategy="rotor", recompute=["*mask*"])
    modules = [importlib.import_module(name) for name in ("masks_in_turn", "masks_in_turn_remat")]
    found = []
    for module in modules:
        torch.manual_seed(0)
        model = module.build_model()
        model.train()
        (x,) = module.example_inputs()
        losses = []
        for batch in (12, 2, 12, 4):
            loss = model(x[:batch])
            loss.backward()
            losses.append(loss.item())
        found.append((losses, model.conv.weight.grad, torch.get_rng_state()))
    (ours, grad, state), (eager, eager_grad, eager_state) = found[1], found[0]
    assert ours == eager
    assert torch.equal(grad, eager_grad)
    assert torch.equal(state, eager_state)
