"""Targets and arguments of the graph become calls of torch again."""

import pytest
import torch
from measure_graphs import Builder

from remat_gen.capture.profile.calls import bind, materialise, resolve
from remat_gen.ir.errors import GraphError
from remat_gen.ir.graph import Literal, Ref


def test_an_operation_runs_as_it_was_traced() -> None:
    build = Builder()
    x = build.tensor("x", (2, 3))
    operation = build.operation("aten.sum.dim_IntList", [x, (1,), True], ["y"])
    value = torch.arange(6.0).reshape(2, 3)

    args, kwargs = bind(operation, {"x": value})

    assert torch.equal(resolve(operation.target)(*args, **kwargs), value.sum(1, keepdim=True))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (Literal("dtype", "bfloat16"), torch.bfloat16),
        (Literal("device", "cuda:0"), torch.device("cuda:0")),
        (Literal("layout", "strided"), torch.strided),
        (Literal("memory_format", "channels_last"), torch.channels_last),
        (Literal("float", "-inf"), float("-inf")),
        (Literal("complex", "(1+2j)"), 1 + 2j),
    ],
)
def test_literals(literal: Literal, value: object) -> None:
    assert materialise(literal, {}) == value


def test_lists_keep_none_and_order() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    lists = materialise((Ref("b"), None, (Ref("a"), 2)), {"a": a, "b": b})
    assert isinstance(lists, list)
    assert lists[0] is b and lists[1] is None and lists[2][0] is a and lists[2][1] == 2


def test_own_targets() -> None:
    assert torch.equal(resolve("remat.rng_state")(torch.device("cpu")), torch.get_rng_state())
    constant = resolve("remat.constant")([1, 2], dtype=torch.float64)
    assert constant.dtype is torch.float64 and constant.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("target", ["aten.no_such_thing.default", "aten.add.no_such_overload"])
def test_an_unknown_target_is_named(target: str) -> None:
    with pytest.raises(GraphError, match=target):
        resolve(target)


def test_an_unknown_literal_is_named() -> None:
    with pytest.raises(GraphError, match="planet"):
        materialise(Literal("planet", "mars"), {})
