"""A public spelling is the operator that it stands for: same arguments, same bits."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from operator_calls import calls_of, overloads_of

from remat_gen.capture.process.operands import is_bitwise_equal
from remat_gen.codegen.expressions import spelling
from remat_gen.codegen.expressions.expressions import Expressions
from remat_gen.codegen.expressions.marks import Mark, value
from remat_gen.ir.graph import Graph, Kind, Literal, Ref, Source, Storage, Tensor, View

_FUNCTIONS = [
    (name, overload)
    for name in sorted(spelling._PUBLIC | spelling._FUNCTIONAL)
    for overload in overloads_of(name)
]
_METHODS = [
    (name, overload)
    for name in sorted(spelling.METHODS | {"_unsafe_view"})
    for overload in overloads_of(name)
]


def leaves(result: Any) -> list[torch.Tensor]:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def same(wanted: Any, got: Any, *, empty: bool) -> bool:
    pairs = list(zip(leaves(wanted), leaves(got), strict=True))
    alike = all(
        (a.shape, a.dtype, a.stride(), a.device) == (b.shape, b.dtype, b.stride(), b.device)
        for a, b in pairs
    )
    return alike and (empty or all(is_bitwise_equal(a, b) for a, b in pairs))


@pytest.mark.parametrize(("name", "overload"), _FUNCTIONS)
def test_function_is_the_operator(name: str, overload: str) -> None:
    operator = getattr(getattr(torch.ops.aten, name), overload)
    text = spelling.function(f"aten.{name}.{overload}")
    public = eval(text, {"torch": torch, "F": F, "aten": torch.ops.aten})
    for args, kwargs in calls_of(name, overload):
        torch.manual_seed(0)
        wanted = operator(*args, **kwargs)
        torch.manual_seed(0)
        got = public(*args, **kwargs)
        assert same(wanted, got, empty=name == "empty_like"), (text, args, kwargs)


@pytest.mark.parametrize(("name", "overload"), _METHODS)
def test_method_is_the_operator(name: str, overload: str) -> None:
    operator = getattr(getattr(torch.ops.aten, name), overload)
    for args, kwargs in calls_of(name, overload):
        wanted = leaves(operator(*args, **kwargs))
        text = written(f"aten.{name}.{overload}", args, kwargs)
        got = leaves(eval(text, {"x": args[0], "torch": torch, "aten": torch.ops.aten}))
        assert same(wanted, got, empty=False), text
        assert all(g.data_ptr() == w.data_ptr() for g, w in zip(got, wanted, strict=True)), text


@pytest.mark.parametrize("target", ["view", "expand", "permute"])
def test_method_of_a_scalar_takes_no_sizes(target: str) -> None:
    x = torch.ones(1) if target == "view" else torch.ones(())
    text = written(f"aten.{target}.default", [x, []], {})
    assert eval(text, {"x": x}).shape == ()


@pytest.mark.parametrize("name", ["amax", "amin", "logsumexp", "mean", "sum"])
@pytest.mark.parametrize("dims", [(0,), (-1,), (0, 2), ()])
@pytest.mark.parametrize("keepdim", [True, False])
def test_lone_dimension_is_a_number(name: str, dims: tuple[int, ...], keepdim: bool) -> None:
    if name == "logsumexp" and not dims:
        pytest.skip("torch takes none")
    overload = {"sum": "dim_IntList", "mean": "dim"}.get(name, "default")
    x = torch.randn(2, 3, 4)
    given = spelling.with_lone_dimension(f"aten.{name}.{overload}", (Ref("x"), dims, keepdim))
    assert given[1:] == (dims[0] if len(dims) == 1 else dims, keepdim)
    wanted = getattr(getattr(torch.ops.aten, name), overload)(x, list(dims), keepdim)
    assert same(wanted, getattr(torch, name)(x, *given[1:]), empty=False)


def test_elu_takes_scales_that_the_public_one_does_not() -> None:
    assert spelling.function("aten.elu.default") == "aten.elu.default"


def test_keyword_in_an_operators_name_is_no_syntax_error() -> None:
    assert spelling.function("mylib.lambda.default") == "torch.ops.mylib.lambda_.default"


def written(target: str, args: list[Any], kwargs: dict[str, Any]) -> str:
    """Write a view of `x`, as it would be in a block."""
    x = args[0]
    storage = Storage("x", x.untyped_storage().nbytes(), Kind.ACTIVATION)
    rest = tuple(map(_argument, args[1:]))
    named = tuple((name, _argument(v)) for name, v in kwargs.items())
    view = View("v", "x", target, (Ref("x"), *rest), named, None, Source("", 0, ""), "x")
    shape, stride = tuple(x.shape), tuple(x.stride())
    tensor = Tensor("x", "x", shape, stride, 0, "float32", "cpu", "x")
    tensors = {"x": tensor, "v": tensor}
    graph = Graph((), (), (view,), tensors, {"x": storage}, (), (), ())
    text = Expressions(graph, lambda name: value(name)).tensor("v")
    return text.replace(str(value("x")), "x")


def _argument(plain: Any) -> Any:
    if isinstance(plain, torch.dtype):
        return Literal("dtype", str(plain).removeprefix("torch."))
    return tuple(plain) if isinstance(plain, list) else plain


def test_marks_stand_for_names_that_are_not_known_yet() -> None:
    assert str(Mark("value", -1, "x")) == str(value("x"))


@pytest.mark.parametrize(
    ("ndim", "place", "text"),
    [
        (1, (), "x[:]"),
        (2, ("0", "1", "3"), "x[1:3]"),
        (2, ("1", "0", "4"), "x[:, :4]"),
        (2, ("-1", "None", "None", "2"), "x[:, ::2]"),
        (4, ("3", "16", str(sys.maxsize)), "x[..., 16:]"),
        (4, ("-2", "-5", "batch // 2", "1"), "x[:, :, -5:batch // 2]"),
    ],
)
def test_a_slice_is_written_as_python_has_it(ndim: int, place: tuple[str, ...], text: str) -> None:
    assert spelling.sliced("x", ndim, place) == text
    numbers = [eval(part, {"batch": 6}) for part in place]
    x = torch.randn((7,) * ndim)
    same = eval(text, {"x": x, "batch": 6})
    other = torch.ops.aten.slice.Tensor(x, *numbers)
    assert (same.shape, same.stride(), same.data_ptr()) == (
        other.shape,
        other.stride(),
        other.data_ptr(),
    )
