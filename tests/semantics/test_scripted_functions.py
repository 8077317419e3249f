"""Functions made by `torch.jit.script`: TorchScript has formulas of its own for their gradients."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from pairs import make_pair_of
from sources import model_source

import remat_gen

PRELUDE = """
@torch.jit.script
def divergence(a: Tensor, b: Tensor) -> Tensor:
    return -0.5 + b - a + 0.5 * (a.exp() ** 2 + (a - b) ** 2) / (b.exp() ** 2)
"""
FORWARD = "return divergence(self.head(self.body(x)), self.head(x)).mean()"


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_their_gradients_are_those_of_the_operators(tmp_path: Path) -> None:
    """Eager's are others from the second call on, in the last bits: of k = 16 epsilons, here."""
    text = model_source(FORWARD, prelude=PRELUDE)
    path = tmp_path / "model.py"
    path.write_text(text, encoding="utf-8")
    (left,) = remat_gen.generate(path, budget="100%", device="cpu").left_out
    assert left.what == "torch.jit.script's own gradient"
    assert left.where.startswith("model.py:")
    original, planned = make_pair_of(text, "1GB", "per-layer").models()
    args, _ = make_pair_of(text, "1GB", "per-layer").inputs()
    for _ in range(3):
        gradients = []
        for model in (original, planned):
            model.zero_grad()
            torch.manual_seed(3)
            model(*args).backward()
            gradients.append([p.grad for p in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert (one - other).abs().max() <= 16 * torch.finfo().eps * one.abs().max()
