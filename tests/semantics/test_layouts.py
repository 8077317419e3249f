"""Views behind kernels that lay their results out otherwise than torch's fake ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right

TURNED = "y = {}(self.body(x).view(2, 3, 8).transpose(1, 2)).transpose(1, 2)\n"
FLAT = "return self.head(y.reshape(6, 8))"
CASES = {
    "batch_norm": ("self.norm = nn.BatchNorm1d(8)", "self.norm"),
    "batch_norm, evaluated": ("self.norm = nn.BatchNorm1d(8).eval()", "self.norm"),
    "logsigmoid": ("pass", "nn.functional.logsigmoid"),
    "rrelu": ("self.rrelu = nn.RReLU()", "self.rrelu"),
}


@pytest.mark.parametrize("budget", ["1GB", "lowest"])
@pytest.mark.parametrize("name", CASES)
def test_a_copy_is_made_where_eager_makes_one(name: str, budget: str) -> None:
    """The step failed: "view size is not compatible with input tensor's size and stride"."""
    init, function = CASES[name]
    forward = TURNED.format(function) + FLAT
    assert_right(make_pair_of(model_source(forward, init=init), budget, "per-layer"))


@pytest.fixture(scope="module")
def gray() -> Pair:
    source = model_source(
        "return self.head(self.body(self.deep(self.stem(x).relu()).flatten(1)[:, :8])).mean()",
        init="        self.stem, self.deep = nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3, groups=4)",
        inputs="(torch.randn(4, 1, 9, 6),)",
    )
    return make_pair_of(source)


def _channels_last(gray: Any) -> Any:
    return gray.to(memory_format=torch.channels_last)


@pytest.mark.parametrize(
    "turn",
    [_channels_last, lambda x: x[:, 0, :, :, None].permute(0, 3, 1, 2)],
    ids=["channels_last", "numpy's images"],
)
def test_images_of_one_channel_may_be_channels_last(gray: Pair, turn: Any) -> None:
    """They count as contiguous in both layouts, and convolutions choose by their strides."""
    (x,), _ = gray.inputs()
    with pytest.raises(ValueError, match=r"x is float32\[4, 1, 9, 6\], strides \[54, 1, 6, 1\] on"):
        gray.models()[1](turn(x))


@pytest.mark.parametrize(("name", "strides"), [("stem", "9, 1, 3, 1"), ("deep", "9, 1, 3, 1")])
def test_weights_of_one_channel_may_be_channels_last(gray: Pair, name: str, strides: str) -> None:
    model = gray.models()[1]
    args, _ = gray.inputs()
    model(*args).backward()
    _channels_last(model.get_submodule(name))
    with pytest.raises(ValueError, match=rf"{name} is Conv2d\(weight: \S+ .*strides \[{strides}\]"):
        model(*args)


def test_a_slice_is_named_with_what_to_give(gray: Pair) -> None:
    (x,), _ = gray.inputs()
    with pytest.raises(ValueError, match=r"strides \[.*planned for .*: give its contiguous\(\)"):
        gray.models()[1](torch.cat((x, x), 3)[..., :6])


def test_one_channel_and_one_row_are_no_other_layout(gray: Pair) -> None:
    model = gray.models()[1]
    (x,), _ = gray.inputs()
    model(x.clone(memory_format=torch.contiguous_format)).backward()
    model(torch.stack(list(x[:, 0]))[:, None]).backward()
    model(x[:1]).backward()
    model(torch.cat((x, x), 1)[:1, :1]).backward()  # of one image strides of the first are none


def test_a_sound_goes_back_to_its_spectrum_as_in_eager() -> None:
    """Torch traces arithmetic of its own for it, whose gradients have other last bits."""
    forward = """\
    spectrum = torch.view_as_complex(x) * self.gain
    sound = torch.istft(spectrum, 64, 16, window=torch.hann_window(64), length=512)
    return self.head(self.body(sound.view(-1, 8))).sin()"""
    init = "self.gain = nn.Parameter(torch.randn(33, 1))"
    source = model_source(forward, init=init, inputs="(torch.randn(8, 33, 33, 2),)")
    assert_right(make_pair_of(source, "1GB", "per-layer"))
