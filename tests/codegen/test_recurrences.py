"""Recurrences that forward writes out: their turns are blocks, written once for all layers."""

from __future__ import annotations

import re
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
from emitting import HEAD, Choose, assert_bitwise, at_share, blocks_run, emit, keep_all
from random_schedules import random_schedule

RECURRENT = (
    HEAD
    + """
class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.x, self.h = nn.Linear(8, 24), nn.Linear(8, 24)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        h, out = torch.zeros_like(x[:, 0]), []
        skip = torch.tanh(x)
        for t in range(x.shape[1]):
            r, z, n = self.x(x[:, t]).chunk(3, -1)
            hr, hz, hn = self.h(h).chunk(3, -1)
            z = torch.sigmoid(z + hz)
            n = torch.tanh(n + torch.sigmoid(r + hr) * hn) * skip[:, t]
            h = (1 - z) * n + z * h
            out.append(h)
        return self.drop(torch.stack(out, 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Recurrent() for _ in range(2))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(3, 10, 8),)
"""
)


def test_the_turns_of_a_layer_are_one_class(tmp_path: Path) -> None:
    """All but the first and the last, which begins what the others add to."""
    emitted = emit(tmp_path, RECURRENT, keep_all)
    assert_bitwise(emitted)
    counts = Counter((name, at[0]) for name, *at in blocks_run(emitted.text) if at)
    often = [layer for (_, layer), count in counts.items() if count == 8]
    assert often == ["layers.0", "layers.1"]
    loops = re.findall(r"for i in range\((.*)\):\n +step\.run\([^)]*index=i\b", emitted.text)
    assert loops == ["8", "8"]


SCHEDULES: list[Choose] = [
    *(at_share("rotor", share) for share in (0.0, 0.3, 0.6)),
    *(
        partial(random_schedule, seed=seed, limit=limit, share=share)
        for seed, limit, share in ((1, 12, 0.05), (2, 40, 0.02), (3, 40, 0.2), (4, 8, 0.01))
    ),
]


@pytest.mark.parametrize("choose", SCHEDULES)
def test_any_schedule_is_bitwise(choose: Choose, tmp_path: Path) -> None:
    """Also where turns of one layer alone share a class, and find what their layers made."""
    assert_bitwise(emit(tmp_path, RECURRENT, choose))
