"""What forward keeps on the model: caches are computed anew, what nobody reads is left out."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from sources import model_source
from steps import assert_right

BODY = "x = self.body(x)\n"
# what __init__ adds, forward behind the body, what is left out
KEPT = {
    "a table": (
        "self.cos = None",
        "if self.cos is None:\n    self.cos = torch.arange(48.0).view(6, 8).cos()\n"
        "return self.head(x * self.cos)",
        "cos",
    ),
    "a table as long as the longest": (
        "self.longest, self.table = 0, None",
        "n = x.shape[0]\nif n > self.longest:\n    self.longest = n\n"
        "    self.table = torch.arange(self.longest).float()[:, None]\n"
        "return self.head(x * self.table[:n])",
        "longest, self.table",
    ),
    "sizes": ("", "self.rows = x.shape[0]\nreturn self.head(x * self.rows)", "rows"),
    "tables in a dict": (
        "self.tables = {}",
        "if 8 not in self.tables:\n    self.tables[8] = torch.arange(8.0)\n"
        "return self.head(x * self.tables[8])",
        "tables[8]",
    ),
    "weights to look at": (
        "self.weights = None",
        "self.weights = x.softmax(-1)\nreturn self.head(x * self.weights)",
        "weights",
    ),
    "on a layer": ("", "self.head.seen = x\nreturn self.head(x)", "head.seen"),
    "the last loss": (
        "self.last = 0.0",
        "loss = self.head(x).sum()\nself.last = loss.item()\nreturn loss",
        "last",
    ),
    "a number beside a table": (
        "self.table = torch.arange(8.0)",
        "self.last = x.mean().item()\nreturn self.head(x * self.table)",
        "last",
    ),
    "a number beside what is kept and read": (
        "",
        "self.last = x.mean().item()\nself.weights = x.softmax(-1)\n"
        "self.shift = x.detach().mean(0)\nreturn self.head(x * self.weights + self.shift)",
        "last",
    ),
    "parts of a loss": (
        "self.parts = []",
        "self.parts = [x.square().mean()]\nself.parts.append(x.mean())\n"
        "return self.head(x).sum() + sum(self.parts)",
        "parts",
    ),
}


@pytest.mark.parametrize("case", KEPT)
def test_the_step_is_eagers(case: str) -> None:
    init, forward, _ = KEPT[case]
    pair = make_pair_of(model_source(BODY + forward, init=init), "lowest", "per-layer")
    assert_right(pair)


def test_a_cache_that_eager_filled_changes_nothing() -> None:
    """Evaluation runs the original forward, which fills it: the next planned step is the same."""
    init, forward, _ = KEPT["a table"]
    pair = make_pair_of(model_source(BODY + forward, init=init), "lowest", "per-layer")
    _, model = pair.models()
    args, _ = pair.inputs()
    losses = []
    for _ in range(2):
        torch.manual_seed(1)
        losses.append(model(*args).sum())
        model.eval()(*args)
        model.train()
    assert torch.equal(*losses)
