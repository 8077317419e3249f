"""A step that does not fit the plan raises, with the command that makes a new one."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right
from torch import nn

Args = tuple[Any, ...]
COMMAND = r"(.|\n)*\n    remat-gen model\.py --budget"


def _call(pair: Pair, change: Callable[[nn.Module, Args], Args | None]) -> None:
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*(change(planned, args) or args))


ARGUMENTS: dict[str, tuple[Callable[[Args], Args], str]] = {
    "batch": (
        lambda a: (a[0].repeat(2, 1), a[1].repeat(2)),
        r"x is float32\[128, 16\] on cpu, planned for float32\[batch <= 64, 16\]",
    ),
    "dtype": (lambda a: (a[0].double(), a[1]), r"x is float64\[64, 16\]"),
    "device": (lambda a: (a[0].to("meta"), a[1]), r"x is float32\[64, 16\] on meta"),
    "requires grad": (lambda a: (a[0].requires_grad_(), a[1]), "requires grad, planned for"),
    "layout": (lambda a: (a[0].t().contiguous().t(), a[1]), r"strides \[1, 64\]"),
    "no tensor": (lambda a: (a[0], None), "targets is None, planned for int64"),
    "a list": (lambda a: ([a[0]], a[1]), r"x is \[float32"),
}


@pytest.mark.limit(
    "inputs of another dtype, device, layout, `requires_grad` or number of dimensions",
    "an error that says what was expected and what came, and the command that plans again",
)
@pytest.mark.parametrize(("change", "message"), ARGUMENTS.values(), ids=ARGUMENTS)
def test_other_arguments(deep: Pair, change: Callable[[Args], Args], message: str) -> None:
    with pytest.raises(ValueError, match=message + COMMAND):
        _call(deep, lambda _, args: change(args))


def _grow(model: nn.Module) -> None:
    model.layers.append(type(model.layers[0])())


def _shrink(model: nn.Module) -> None:
    model.layers[2].up = nn.Linear(16, 32)
    model.layers[2].down = nn.Linear(32, 16)


def _dropout(model: nn.Module) -> None:
    model.layers[1].drop.p = 0.5


def _swap(model: nn.Module) -> None:
    model.layers[1].drop = nn.Identity()


MODELS: dict[str, tuple[Callable[[nn.Module], object], str]] = {
    "frozen since": (
        lambda m: m.layers[0].up.weight.requires_grad_(False),
        r"requires_grad of layers\.0\.up\.weight changed",
    ),
    "submodule in eval": (lambda m: m.layers[3].eval(), r"training mode of layers\.3 changed"),
    "other dtype": (lambda m: m.double(), r"layers\.0\.norm\.weight is now float64"),
    "other device": (lambda m: m.to("meta"), "on meta"),
    "more layers": (_grow, "the model's modules"),
    "other widths": (_shrink, "the model's modules"),
    "other dropout": (_dropout, "such as the p of a dropout"),
    "other module": (_swap, "the model's modules"),
    "other class": (
        lambda m: setattr(m.layers[1].drop, "__class__", nn.Dropout1d),
        "the model's modules",
    ),
    "other parameter": (
        lambda m: setattr(m.layers[1].up, "bias", None),
        "the model's modules",
    ),
    "other memory": (
        lambda m: setattr(m.layers[1].up.weight, "data", torch.randn(16, 32).t()),
        "the model's modules",
    ),
    "new hook": (
        lambda m: m.layers[1].register_forward_hook(lambda *_: None),
        r"layers\.1 has a hook",
    ),
}


@pytest.mark.limit(
    "layers, dropout rates, training modes or frozen parameters that changed since planning",
    "an error that names them, and the command that plans again",
)
@pytest.mark.parametrize(("change", "message"), MODELS.values(), ids=MODELS)
def test_another_model(deep: Pair, change: Callable[[nn.Module], object], message: str) -> None:
    def changed(model: nn.Module, args: Args) -> None:
        change(model)

    with pytest.raises(ValueError, match=message + COMMAND):
        _call(deep, changed)


@pytest.mark.parametrize(("change", "message"), MODELS.values(), ids=MODELS)
def test_a_model_that_changes_after_a_step(
    deep: Pair, change: Callable[[nn.Module], object], message: str
) -> None:
    """From the second step on only what may have changed is looked at."""
    _, planned = deep.models()
    args, _ = deep.inputs()
    planned(*args)
    planned(*args)
    change(planned)
    with pytest.raises(ValueError, match=message + COMMAND):
        planned(*args)


def test_equal_objects_in_place_of_others_are_no_change(deep: Pair) -> None:
    _, planned = deep.models()
    args, _ = deep.inputs()
    planned(*args)
    planned.layers[1].drop = nn.Dropout(planned.layers[1].drop.p)
    planned.layers[0].up.weight = nn.Parameter(planned.layers[0].up.weight.detach().clone())
    assert planned(*args) is not None


def test_two_models_take_turns(deep: Pair) -> None:
    (_, one), (_, other) = deep.models(), deep.models()
    args, _ = deep.inputs()
    for model in (one, other, one, other):
        assert model(*args) is not None
    other.layers[1].drop.p = 0.5
    assert one(*args) is not None
    with pytest.raises(ValueError, match="such as the p of a dropout"):
        other(*args)


def test_a_model_is_let_go_of(deep: Pair) -> None:
    """What was seen of it must not keep its parameters in memory."""
    _, planned = deep.models()
    planned(*deep.inputs()[0])
    model, weight = weakref.ref(planned), weakref.ref(planned.layers[0].up.weight)
    del planned
    gc.collect()
    assert model() is None
    assert weight() is None


@pytest.mark.limit(
    "tensors that are plain attributes and change from step to step",
    "an error; register a buffer",
)
def test_a_tensor_that_was_traced_as_a_constant() -> None:
    source = model_source(
        "return self.head(self.body(x)) * self.scale",
        init="self.scale = torch.tensor([1.0, 2.0, 3.0, 4.0])",
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    assert_right(pair)

    def change(model: nn.Module, args: Args) -> None:
        model.scale = model.scale * 2

    with pytest.raises(ValueError, match="plain attributes" + COMMAND):
        _call(pair, change)
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*args)
    planned.scale.mul_(2)  # the same object
    with pytest.raises(ValueError, match="plain attributes" + COMMAND):
        planned(*args)


@pytest.mark.limit(
    "autocast around a step that was planned without it",
    "an error; name it in `step_context()` and plan again",
)
def test_autocast(deep: Pair) -> None:
    with (
        pytest.raises(ValueError, match="autocast is enabled" + COMMAND),
        torch.autocast("cpu", torch.bfloat16),
    ):
        _call(deep, lambda _, args: args)


@pytest.mark.limit(
    "backward under autocast",
    "an error; leave autocast before `backward()`",
)
def test_backward_under_autocast_is_refused(deep: Pair) -> None:
    _, planned = deep.models()
    loss = planned(*deep.inputs()[0])
    with pytest.raises(RuntimeError, match="autocast"), torch.autocast("cpu", torch.bfloat16):
        loss.backward()


@pytest.fixture(scope="module")
def flexible() -> Pair:
    """Return a model that takes containers, numbers, defaults, and any number of arguments."""
    source = model_source(
        "h = self.body(batch['x'][0])\n"
        "for other in rest:\n"
        "    h = h + other\n"
        "if bias is not None:\n"
        "    h = h + bias\n"
        "return self.head(h) * scale + len(options)",
        arguments=(
            "self, batch: dict[str, list[Tensor]], *rest: Tensor, scale: float = 1.0, "
            "bias: Tensor | None = None, **options: Any"
        ),
        inputs="((({'x': [torch.randn(6, 8)]}, torch.ones(8))), {'scale': 2.0})",
    )
    return make_pair_of(source, "1GB", "per-layer")


def test_the_planned_call_fits(flexible: Pair) -> None:
    _, planned = flexible.models()
    planned({"x": [torch.randn(6, 8)]}, torch.ones(8), scale=2.0)


x = torch.ones(6, 8)
OTHER_CALLS: dict[str, tuple[Args, dict[str, Any], str]] = {
    "number": (({"x": [x]}, x[0]), {"scale": 3.0}, r"scale is 3\.0, planned for 2\.0"),
    "kind of number": (({"x": [x]}, x[0]), {"scale": 2}, r"scale is 2, planned for 2\.0"),
    "left at its default": (({"x": [x]}, x[0]), {}, r"scale is 1\.0, planned for 2\.0"),
    "a default that is given": (
        ({"x": [x]}, x[0]),
        {"scale": 2.0, "bias": x[0]},
        r"bias is float32\[8\] on cpu, planned for None",
    ),
    "one more argument": (({"x": [x]}, x[0], x[0]), {"scale": 2.0}, r"rest is \[float32\[8\]"),
    "one argument less": (({"x": [x]},), {"scale": 2.0}, r"rest is \[\], planned for \["),
    "one more option": (({"x": [x]}, x[0]), {"scale": 2.0, "y": 1}, r"options is \{'y': 1\}"),
    "one more in a list": (({"x": [x, x]}, x[0]), {"scale": 2.0}, "batch is "),
    "one more in a dict": (({"x": [x], "z": 0}, x[0]), {"scale": 2.0}, "batch is .*'z': 0"),
    "an empty dict": (({}, x[0]), {"scale": 2.0}, r"batch is \{\}"),
}


@pytest.mark.limit(
    "other numbers, options, containers or keywords than the example's",
    "an error that says what was expected and what came, and the command that plans again",
)
@pytest.mark.parametrize(("args", "kwargs", "message"), OTHER_CALLS.values(), ids=OTHER_CALLS)
def test_other_calls(flexible: Pair, args: Args, kwargs: dict[str, Any], message: str) -> None:
    _, planned = flexible.models()
    with pytest.raises(ValueError, match=message + COMMAND):
        planned(*args, **kwargs)


def test_what_a_trainer_puts_on_the_model_is_no_change(deep: Pair) -> None:
    _, planned = deep.models()
    args, _ = deep.inputs()
    planned.current_epoch = 3
    assert planned(*args) is not None
