"""A module that forward calls over and over is written once, but for its first and last call."""

from __future__ import annotations

from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, blocks_run, emit

LOOPED = """
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(16), nn.Dropout(0.1)
        self.up, self.down = nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x):
        return x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.core = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        for _ in range(TURNS):
            for layer in self.core:
                x = layer(x)
        return self.head(x).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(8, 12, 16),)
"""


def text_of(layers: int, turns: int) -> str:
    return f"{HEAD}LAYERS, TURNS = {layers}, {turns}\n{LOOPED}"


@pytest.mark.parametrize("share", [None, 0.0, 0.4])
def test_a_layer_that_runs_six_times(tmp_path: Path, share: float | None) -> None:
    """Backward of the last call makes the gradients that those before it add to."""
    choose = () if share is None else (at_share("per-layer", share),)
    emitted = emit(tmp_path, text_of(1, 6), *choose)
    assert_bitwise(emitted)
    called = [name for name, *at in blocks_run(emitted.text) if at[:1] == ["core.0"]]
    assert called == ["LayerFirst", *["LayerBlock"] * 4, "LayerLast"]
    assert "core.0@*: " in emitted.text


def test_layers_that_run_in_turns(tmp_path: Path) -> None:
    emitted = emit(tmp_path, text_of(2, 4))
    assert_bitwise(emitted)
    ran = blocks_run(emitted.text)
    blocks = [(name, at[0].removeprefix("core.")) for name, *at in ran if at and "core." in at[0]]
    assert [number for _, number in blocks] == [*"01" * 4]
    assert len({name for name, _ in blocks[2:6]}) <= 2


def test_one_call_more_adds_no_line(tmp_path: Path) -> None:
    """Nor to the table above forward."""
    texts = []
    for turns in (6, 7):
        (folder := tmp_path / str(turns)).mkdir()
        texts.append(emit(folder, text_of(1, turns)).text)
    six, seven = texts
    longer = len(seven.splitlines()) - len(six.splitlines())
    assert longer == 0
