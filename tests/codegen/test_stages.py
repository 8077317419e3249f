"""Stages of other widths are written once: their classes say from where to where bytes go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from emitting import HEAD, assert_bitwise, at_share, blocks_run, emit
from torch import nn

from remat_gen.codegen.classes.class_names import _part
from remat_gen.codegen.expressions.prose import camel
from remat_gen.ir.byte_text import sizes

STAGES = """
class Block(nn.Module):
    def __init__(self, width, stride):
        super().__init__()
        self.stride = stride
        self.conv = nn.Conv2d(width // stride, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.mix = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = F.relu(self.norm(self.conv(x)))
        y = F.relu(self.norm_2(self.mix(y)))
        return y if self.stride > 1 else x + y


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 3, 1, 1, bias=False)
        shapes = ((8, 2), (8, 1), (8, 1), (16, 2), (16, 1), (16, 1))
        self.blocks = nn.ModuleList(Block(*shape) for shape in shapes)

    def forward(self, x):
        x = F.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return x.square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(2, 3, 64, 64),)
"""


def test_blocks_of_two_widths_are_one_class(tmp_path: Path) -> None:
    emitted = emit(tmp_path, HEAD + STAGES)
    assert_bitwise(emitted)
    called = [name for name, *_ in blocks_run(emitted.text)]
    assert len(called) == 7  # six blocks, the stem with the first of them, and the mean
    assert called[1:3] == called[4:6], "what is behind the first block of each stage"
    assert re.search(r"self\.conv = [^#]*  # retain 32 to 64 KiB\n", emitted.text)
    assert re.search(r"  # free [\d.]+ to [\d.]+ KiB\n", emitted.text)


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_what_is_run_again_says_so_too(tmp_path: Path, share: float) -> None:
    emitted = emit(tmp_path, HEAD + STAGES, at_share("per-layer", share))
    assert_bitwise(emitted)
    assert "# re-run" in emitted.text


@pytest.mark.parametrize(
    ("amounts", "text"),
    [
        ([4096], "4 KiB"),
        ([4096, 4096], "4 KiB"),
        ([8192, 4096, 6144], "4 to 8 KiB"),
        ([512, 4096], "512 B to 4 KiB"),
        ([2**20 + 1, 2**20], "1 MiB"),
        ([512 * 1024, 3 * 2**19], "512 KiB to 1.5 MiB"),
    ],
)
def test_sizes(amounts: list[int], text: str) -> None:
    assert sizes(amounts) == text


@pytest.mark.parametrize(
    ("text", "name"),
    [("ln_1", "Ln1"), ("h.10", "H10"), ("layer2_0", "Layer2_0"), ("features_1_10", "Features1_10")],
)
def test_numbers_stay_apart_in_class_names(text: str, name: str) -> None:
    assert camel(text) == name


def test_of_parts_that_weigh_the_same_the_first_gives_its_name() -> None:
    """Paths come from a set where a part is looked into: names went by the process's hash seed."""
    owner = nn.ModuleDict({name: nn.Linear(4, 4) for name in ("mu", "lv")})
    owner["x"] = nn.Linear(2, 2)
    found = {_part(owner, order, attributes=True) for order in (["mu", "lv"], ["lv", "mu"])}
    assert found == {("lv", "Lv")}
