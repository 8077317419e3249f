"""torch.compile around the planned model: one clean break, the plan stays as it is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from pairs import Pair
from steps import bytes_kept, same
from torch import nn
from torch._dynamo.utils import counters


@pytest.fixture
def compiled(deep: Pair) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Return the planned model, and itself compiled."""
    torch._dynamo.reset()
    counters.clear()
    _, planned = deep.models()
    yield planned, torch.compile(planned, backend="aot_eager")
    torch._dynamo.reset()


def test_gradients_are_eagers(deep: Pair, compiled: tuple[nn.Module, nn.Module]) -> None:
    planned, faster = compiled
    original, _ = deep.models()
    for model in (original, faster):
        for seed in (0, 1):
            torch.manual_seed(seed)
            model(*deep.inputs()[0]).backward()
    pairs = zip(original.parameters(), planned.parameters(), strict=True)
    assert all(same(p.grad, q.grad) for p, q in pairs)


def test_the_graph_breaks_once(deep: Pair, compiled: tuple[nn.Module, nn.Module]) -> None:
    compiled[1](*deep.inputs()[0]).backward()
    assert sum(counters["graph_break"].values()) == 1
    assert "torch.compiler.disable" in next(iter(counters["graph_break"]))


def test_no_more_is_kept_for_backward(deep: Pair, compiled: tuple[nn.Module, nn.Module]) -> None:
    kept = []
    for model in compiled:
        loss = model(*deep.inputs()[0])
        kept.append(bytes_kept(loss))
    assert kept[0] == kept[1]
    assert 0 < kept[0] < deep.plan.predicted.eager_peak_bytes / 2
