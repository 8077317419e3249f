"""Dropout on the CPU: the draws, the layout and the rounding of eager, from a mask of booleans."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from tracing import source, traced

from remat_gen.capture.as_eager.dropout import dropout
from remat_gen.ir.graph import Graph

CHANCES = [i / 100 for i in range(1, 100)] + [1 / 3, 0.123, 0.0, 1.0]
LAYOUTS = {
    "contiguous": torch.randn(4, 6, 5, 3),
    "channels last": torch.randn(4, 6, 5, 3).to(memory_format=torch.channels_last),
    "transposed": torch.randn(4, 6, 5, 3).transpose(1, 3),
    "expanded": torch.randn(4, 1, 5, 3).expand(4, 6, 5, 3),
    "every other": torch.randn(4, 6, 5, 6)[..., ::2],
    "nothing": torch.randn(4, 0),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def _equals_eager(x: torch.Tensor, p: float) -> bool:
    torch.manual_seed(0)
    eager, eager_next = F.dropout(x, p), torch.rand(1)
    torch.manual_seed(0)
    ours, ours_next = dropout(x, p, True), torch.rand(1)
    same = torch.equal(eager, ours) and torch.equal(eager_next, ours_next)
    return same and eager.stride() == ours.stride()


@pytest.mark.parametrize("p", CHANCES)
def test_every_probability_is_rounded_as_eager_rounds_it(p: float) -> None:
    assert _equals_eager(torch.randn(500), p)


def test_the_fused_kernel_is_not_what_eager_runs() -> None:
    x = torch.randn(500)
    torch.manual_seed(0)
    eager = F.dropout(x, 0.15)
    torch.manual_seed(0)
    fused, _ = torch.native_dropout(x, 0.15, True)
    assert not torch.equal(eager, fused)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_and_dtype(layout: str, dtype: torch.dtype) -> None:
    assert _equals_eager(LAYOUTS[layout].to(dtype), 0.15)


def test_out_of_training_nothing_is_drawn() -> None:
    x = torch.randn(5)
    before = torch.get_rng_state()
    assert dropout(x, 0.5, False) is x
    assert torch.equal(before, torch.get_rng_state())


def _targets(graph: Graph) -> list[str]:
    names = ("remat.dropout_mask.default", "remat.dropout_scale.default", "aten.mul.Tensor")
    return [o.target for o in graph.operations if o.target in names]


@pytest.mark.parametrize("inplace", [False, True])
def test_what_is_retained_is_a_mask_of_booleans(tmp_path: Path, inplace: bool) -> None:
    init = f"self.fc = nn.Linear(4, 4); self.drop = nn.Dropout(0.15, inplace={inplace})"
    forward = "return self.drop(self.fc(x)).sum()"
    graph = traced(tmp_path, source(init, forward, "(torch.randn(2, 4),)")).graph
    mask, scale, kept, back = _targets(graph)
    assert (mask, scale) == ("remat.dropout_mask.default", "remat.dropout_scale.default")
    assert kept == back == "aten.mul.Tensor"
    names = {o.target: o.outputs[0] for o in graph.operations}
    assert str(graph.tensors[names[mask]].dtype) == "bool"
    assert not any("native_dropout" in o.target for o in graph.operations)


def test_the_mask_needs_no_tensor_to_be_drawn_again(tmp_path: Path) -> None:
    init = "self.fc = nn.Linear(4, 4); self.drop = nn.Dropout(0.5)"
    graph = traced(
        tmp_path, source(init, "return self.drop(self.fc(x)).sum()", "(torch.randn(2, 4),)")
    ).graph
    (mask,) = (o for o in graph.operations if "dropout_mask" in o.target)
    assert mask.args[:2] == ((2, 4), (4, 1)) and mask.state


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("directions", [1, 2])
def test_masks_are_drawn_between_the_layers_of_an_rnn(
    tmp_path: Path, kind: str, directions: int
) -> None:
    """Two for three layers, each of all directions; torch's own trace draws none."""
    rnn = f"nn.{kind}(8, 8, 3, dropout=0.3, bidirectional={directions == 2})"
    text = source(f"self.rnn = {rnn}", "return self.rnn(x)[0].sum()", "(torch.randn(3, 4, 8),)")
    graph = traced(tmp_path, text).graph
    masks = [o for o in graph.operations if o.target == "remat.dropout_mask.default"]
    shapes = [graph.tensors[o.outputs[0]].shape for o in masks]
    assert shapes == 2 * [(3, 4, 8 * directions)]
