"""Layers whose backward begins with what reads nothing of forward are one class.

It is called after what they are, also where a layer multiplies with another module's weight itself.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, blocks_run, emit

GATED = """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up = nn.Linear(32, 128)
        self.down = nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(F.glu(self.up(self.norm(x))))


class Attending(Block):
    def __init__(self):
        super().__init__()
        self.norm_2 = nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 2, batch_first=True)

    def forward(self, x):
        y = self.norm_2(x)
        return super().forward(x + self.attention(y, y, y, need_weights=False)[0])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(8, 32)
        self.layers = nn.ModuleList(KIND() for _ in range(5))
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        x = self.stem(x)
        for layer in self.layers:
            x = layer(x)
        return F.mse_loss(self.head(x.mean(1)), torch.zeros(x.shape[0], 4))


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(4, 16, 8),)
"""


@pytest.mark.parametrize("share", [0.0, 0.4])
@pytest.mark.parametrize(
    ("kind", "name"), [("Block", "BlockLayer"), ("Attending", "AttendingBlock")]
)
def test_what_stands_before_and_behind_is_no_other_class(
    tmp_path: Path, share: float, kind: str, name: str
) -> None:
    text = HEAD + GATED.replace("KIND", kind)
    emitted = emit(tmp_path, text, at_share("per-layer", share))
    assert_bitwise(emitted)
    called = [name for name, *_ in blocks_run(emitted.text)]
    assert called.count(name) >= 4, "the first, the last and those between"
    assert len({*called}) <= 3, "what is before and behind them"


def test_a_result_that_the_last_layer_alone_does_not_keep(tmp_path: Path) -> None:
    """The mean behind it frees it at once: the code is the others'."""
    emitted = emit(tmp_path, HEAD + GATED.replace("KIND", "Block"), at_share("per-layer", 0.4))
    assert re.search(r"  # retain 8 KiB in 4 of 5\n", emitted.text)
    assert re.search(r"del before\.x  # free 8 KiB\n", emitted.text)
