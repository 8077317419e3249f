"""Which layer a path lies in, and which one a name belongs to."""

from __future__ import annotations

import pytest

from remat_gen.ir.paths import layer_in, layer_of


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
    assert layer_of(path) == layer


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
    assert layer_in(name) == layer


def test_a_member_of_a_list_of_parameters_is_no_layer() -> None:
    assert layer_in("scales.2") == layer_in("7") == ""
    assert layer_in("h.0.scales.2") == "h.0"
