"""Which layer a path lies in, and which one a name belongs to."""

from __future__ import annotations

import pytest

from remat_gen.ir.paths import OUTERMOST, Layers


@pytest.mark.parametrize(
    ("path", "layer"),
    [
        ("h.0", "h.0"),
        ("h.0.attn", "h.0"),
        ("encoder.layers.11.experts.3", "encoder.layers.11"),
        ("0.2.conv", "0"),
        ("h1.attn", ""),
        ("ln_f", ""),
        ("", ""),
    ],
)
def test_the_layer_of_a_module(path: str, layer: str) -> None:
    assert OUTERMOST.of(path) == layer


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("h.0.attn.qkv.weight", "h.0"),
        ("encoder.layers.1.experts.3.up", "encoder.layers.1"),
        ("ln_f.d_x", ""),
        ("loss", ""),
    ],
)
def test_the_layer_that_owns_a_name(name: str, layer: str) -> None:
    assert OUTERMOST.holding(name) == layer


def test_a_member_of_a_list_of_parameters_is_no_layer() -> None:
    assert OUTERMOST.holding("scales.2") == OUTERMOST.holding("7") == ""
    assert OUTERMOST.holding("h.0.scales.2") == "h.0"


def test_blocks_of_stages_are_layers() -> None:
    layers = Layers(frozenset({"stages.2.blocks", "features.4"}))
    assert layers.of("stages.2.blocks.3.mlp.0") == "stages.2.blocks.3"
    assert layers.of("stages.2.downsample.0") == "stages.2"
    assert layers.of("stages.1.blocks.3.mlp") == "stages.1"
    assert layers.holding("features.4.1.conv.0.weight") == "features.4.1"
    assert layers.relative("features.4.1.conv.0.weight") == "conv.0.weight"
    assert layers.relative("ln_f.weight") == "ln_f.weight"
    assert layers.all_holding(["stages.2.blocks.3.a", "b", "stages.2.blocks.3.c"]) == [
        "stages.2.blocks.3",
        "",
    ]
