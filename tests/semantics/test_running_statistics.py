"""Norms whose running statistics are no buffer's alone: repeated for each sample, or read again."""

from __future__ import annotations

import pytest
import torch
from pairs import make_pair_of
from steps import assert_right, assert_same, run_steps

SOURCE = """
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Conv{d}d(4, 16, 3, padding=1)
        self.norm = nn.{norm}
        self.down = nn.Conv{d}d(16, 4, 3, padding=1)

    def forward(self, x):
        y = self.norm(self.up(x))
        return x + self.down({read})


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range({count}))

    def forward(self, x):
        for layer in (*self.layers, {again}):
            x = layer(x)
        return x.square().mean(){end}


def build_model():
    return Model(){to}


def example_inputs():
    return (torch.randn({shape}){to},)
"""
INSTANCE = "InstanceNorm2d(16, affine=True, track_running_stats=True)"
BATCH = "BatchNorm2d(16)"


def source(
    norm: str,
    read: str = "F.silu(y)",
    *,
    again: str = "",
    end: str = "",
    to: str = "",
    shape: tuple[int, ...] = (3, 4, 8, 8),
) -> str:
    return SOURCE.format(
        d=len(shape) - 2, norm=norm, read=read, again=again, end=end, to=to, shape=shape, count=3
    )


SOURCES = {
    "instance": source(INSTANCE),
    "instance, no weights": source(INSTANCE.replace("affine=True, ", "")),
    "instance, other momentum": source(INSTANCE.replace("affine=True", "momentum=0.3")),
    "instance, one sample": source(INSTANCE, shape=(1, 4, 8, 8)),
    "instance, one dimension": source(INSTANCE.replace("2d", "1d"), shape=(3, 4, 24)),
    "instance, three dimensions": source(INSTANCE.replace("2d", "3d"), shape=(2, 4, 4, 4, 4)),
    "instance, one layer twice": source(INSTANCE, again="self.layers[0]"),
    "instance, 16 bits": source(INSTANCE, to=".to(torch.bfloat16)"),
    "batch, read again": source(BATCH, "F.silu(y) * self.norm.running_var.mean()"),
    "batch, read again, one layer twice": source(
        BATCH, "F.silu(y) + self.norm.running_mean.sum()", again="self.layers[0]"
    ),
    "batch, one layer twice, then read": source(
        BATCH, again="self.layers[0]", end=" * self.layers[0].norm.running_var.mean()"
    ),
    "batch, of a copy": source(
        BATCH,
        "F.silu(F.batch_norm(y, self.norm.running_mean.clone(), "
        "self.norm.running_var.clone(), training=True))",
    ),
}


@pytest.mark.parametrize("name", SOURCES)
def test_steps_are_eagers(name: str) -> None:
    assert_right(make_pair_of(SOURCES[name], strategy="per-layer"))


def test_statistics_move_once_a_step_where_the_norm_runs_again() -> None:
    pair = make_pair_of(SOURCES["instance"], strategy="per-layer")
    original, planned = pair.models()
    again = planned.layers[0].norm
    before = again.running_mean.clone()
    with torch.profiler.profile() as seen:
        planned(*pair.inputs()[0]).backward()
    calls = [e for e in seen.events() if e.name == "aten::_batch_norm_with_update_functional"]
    assert len(calls) > 3  # some ran again
    original(*pair.inputs()[0]).backward()
    assert not torch.equal(before, again.running_mean)
    assert torch.equal(original.layers[0].norm.running_mean, again.running_mean)
    assert original.layers[0].norm.num_batches_tracked == again.num_batches_tracked


def test_a_smaller_batch_and_eval() -> None:
    pair = make_pair_of(SOURCES["instance"], strategy="per-layer")
    original, planned = pair.models()
    for rows in (2, 1):
        x = torch.randn(rows, 4, 8, 8)
        for model in (original, planned):
            model(x).backward()
    assert all(
        torch.equal(one, other)
        for one, other in zip(original.buffers(), planned.buffers(), strict=True)
    )
    assert_same(run_steps(original, pair), run_steps(planned, pair))
