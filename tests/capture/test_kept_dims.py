"""A bias's gradient is a sum that drops its dimensions, not a view of one that keeps them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from tracing import source, traced

from remat_gen.capture.lower.kept_dims import drop_kept_dims
from remat_gen.capture.process.operands import is_bitwise_equal

x = torch.randn(3, 4, 5)


def graph_of(function: Callable[..., Any]) -> fx.GraphModule:
    module = make_fx(function, tracing_mode="fake")(x)
    drop_kept_dims(module.graph)
    module.graph.lint()
    module.recompile()
    return module


def sums(module: fx.GraphModule) -> list[tuple[object, ...]]:
    calls = [n for n in module.graph.nodes if n.target is torch.ops.aten.sum.dim_IntList]
    return [n.args[1:] for n in calls]


@pytest.mark.parametrize("dims", [[0], [1], [-1], [0, 1], [0, -1], [0, 1, 2], []])
def test_view_without_the_dimensions_is_the_sum(dims: list[int]) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        shape = torch.ops.aten.sum.dim_IntList(x, dims).shape
        kept = torch.ops.aten.sum.dim_IntList(x, dims, True)
        return torch.ops.aten.view.default(kept, shape) + 1

    module = graph_of(function)
    assert (dims,) in sums(module)
    assert not any(args[1:] for args in sums(module))
    assert all(n.target is not torch.ops.aten.view.default for n in module.graph.nodes)
    assert is_bitwise_equal(module(x), function(x))


def test_other_views_are_of_the_sum() -> None:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = x.sum(0, keepdim=True)
        return kept.view(4, 5) * 2, kept.view(10, 2) * 3

    module = graph_of(function)
    assert sums(module) == [([0],)]
    assert all(map(is_bitwise_equal, module(x), function(x)))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * x.sum(0, keepdim=True).view(1, 4, 5),  # the shape that the sum has
        lambda x: x.sum(0, keepdim=True).view(5, 4) * 2,
        lambda x: (lambda kept: (kept, kept.view(4, 5) * 2))(x.sum(0, keepdim=True)),
        lambda x: (lambda kept: kept.view(4, 5) * kept)(x.sum(0, keepdim=True)),
    ],
)
def test_kept_where_they_are_read(function: Callable[..., Any]) -> None:
    assert all(args[1:] == (True,) for args in sums(graph_of(function)))


def test_a_number_has_no_dimensions_to_keep() -> None:
    module = graph_of(lambda x: x.sum().sum(-1, keepdim=True).view(1))
    assert is_bitwise_equal(module(x), x.sum().view(1))


def test_gradients_of_biases(tmp_path: Path) -> None:
    layers = "self.up = nn.Linear(8, 6)\nself.down = nn.Linear(6, 2)"
    graph = traced(tmp_path, source(layers, "return self.down(self.up(x).relu())")).graph
    operations = [o for o in graph.operations if o.target == "aten.sum.dim_IntList"]
    assert [o.args[1:] for o in operations] == [((0,),), ((0,),)]
