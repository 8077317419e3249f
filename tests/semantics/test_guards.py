"""A step that does not fit the plan raises, with the command that makes a new one."""

from __future__ import annotations

import copy
import gc
import io
import subprocess
import sys
import weakref
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right, assert_same, run_steps
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
        r"layers\.0\.up is Linear\(weight: float32\[64, 16\] frozen, .*planned for Linear\(",
    ),
    "submodule in eval": (
        lambda m: m.layers[3].eval(),
        r"layers\.3\.drop\.training is False, planned for True",
    ),
    "other dtype": (
        lambda m: m.double(),
        r"layers\.0 is Layer\(scale: buffer float64\[16\]\), "
        r"planned for Layer\(scale: buffer float32\[",
    ),
    "other device": (lambda m: m.to("meta"), "on meta"),
    "more layers": (_grow, r"layers is ModuleList\[11\], planned for ModuleList\[10\]"),
    "other widths": (_shrink, r"layers\.2\.up is Linear\(weight: float32\[32, 16\].*planned for"),
    "other dropout": (_dropout, r"layers\.1\.drop\.p is 0\.5, planned for 0\.25"),
    "other module": (_swap, r"layers\.1\.drop is Identity, planned for Dropout"),
    "other class": (
        lambda m: setattr(m.layers[1].drop, "__class__", nn.Dropout1d),
        r"layers\.1\.drop is Dropout1d, planned for Dropout",
    ),
    "other parameter": (
        lambda m: setattr(m.layers[1].up, "bias", None),
        r"layers\.1\.up is Linear\(weight: \S+ \d+\]\), planned for Linear\(weight: .*, bias:",
    ),
    "other memory": (
        lambda m: setattr(m.layers[1].up.weight, "data", torch.randn(16, 32).t()),
        r"layers\.1\.up is Linear\(weight: float32\[32, 16\], strides \[1, 32\],",
    ),
    "new hook": (
        lambda m: m.layers[1].register_forward_hook(lambda *_: None),
        r"layers\.1 is .* with hook .*<lambda>, planned for",
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


def _other_contents(model: nn.Module) -> None:
    layer: Any = model.get_submodule("layers.1.up")
    other = nn.Linear(layer.in_features, layer.out_features)
    other.load_state_dict({name: value + 1 for name, value in layer.state_dict().items()})
    layer.__dict__ = other.__dict__


def test_a_module_that_is_handed_other_contents(deep: Pair) -> None:
    found = []
    for model in deep.models():
        run_steps(model, deep)
        model.zero_grad()
        _other_contents(model)
        found.append(run_steps(model, deep))
    assert_same(*found)


EQUAL = model_source("return self.head(self.body(x)).square().mean()").replace(
    "    def body(",
    "    def __eq__(self, other: object) -> bool:\n        return isinstance(other, Model)\n\n"
    "    def __hash__(self) -> int:\n        return 1\n\n    def body(",
)


def test_models_that_are_equal_have_parameters_of_their_own() -> None:
    pair = make_pair_of(EQUAL, "1GB", "per-layer")
    built = [pair.models(seed) for seed in (0, 1)]
    assert built[0][1] == built[1][1]
    for original, planned in built:
        assert_same(run_steps(original, pair), run_steps(planned, pair))


def test_two_models_take_turns(deep: Pair) -> None:
    (_, one), (_, other) = deep.models(), deep.models()
    args, _ = deep.inputs()
    for model in (one, other, one, other):
        assert model(*args) is not None
    other.layers[1].drop.p = 0.5
    assert one(*args) is not None
    with pytest.raises(ValueError, match=r"layers\.1\.drop\.p is 0\.5, planned for"):
        other(*args)


def test_a_model_is_let_go_of(deep: Pair) -> None:
    """What was seen of it must not keep its parameters in memory."""
    _, planned = deep.models()
    planned(*deep.inputs()[0])
    model, weight = weakref.ref(planned), weakref.ref(planned.layers[0].up.weight)
    gc.collect()
    gc.disable()
    try:
        del planned
        assert model() is None  # at once
        assert weight() is None
    finally:
        gc.enable()


class _Trainer:
    def __init__(self, model: nn.Module) -> None:
        self.model = model


HOLDS_ITSELF: dict[str, Callable[[Any], object]] = {
    "a trainer": lambda m: setattr(m, "trainer", _Trainer(m)),
    "a bound method": lambda m: setattr(m, "more", m.forward_eager),
    "a child that has its parent": lambda m: vars(m.layers[0]).update(_parent=m),
    "a hook": lambda m: m.register_forward_hook(lambda *_: m and None),
    "a parameter's hook": lambda m: m.head.weight.register_hook(lambda _: m and None),
}


@pytest.mark.parametrize("hold", HOLDS_ITSELF.values(), ids=HOLDS_ITSELF)
def test_a_model_that_can_be_reached_from_itself_is_let_go_of(
    deep: Pair, hold: Callable[[Any], object]
) -> None:
    _, planned = deep.models()
    hold(planned)
    planned(*deep.inputs()[0])
    model = weakref.ref(planned)
    del planned
    gc.collect()
    assert model() is None


def _pickled(model: nn.Module) -> nn.Module:
    written = io.BytesIO()
    torch.save(model, written)
    written.seek(0)
    read: nn.Module = torch.load(written, weights_only=False)
    return read


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, _pickled])
def test_a_copy_of_a_model_that_has_been_looked_at(
    deep: Pair, copied: Callable[[nn.Module], nn.Module]
) -> None:
    left = []
    for model in deep.models():
        run_steps(model, deep)
        model.zero_grad()
        other = copied(model)
        left += [run_steps(other, deep), run_steps(model, deep)]
    assert_same(left[0], left[2])
    assert_same(left[1], left[3])


def test_weights_of_one_call_are_not_kept(deep: Pair) -> None:
    _, planned = deep.models()
    scale = torch.ones((), requires_grad=True)
    weights = {name: p.detach() * scale for name, p in planned.named_parameters()}
    found = [weakref.ref(weight) for weight in weights.values()]
    torch.func.functional_call(planned, weights, deep.inputs()[0]).backward()
    assert scale.grad is not None
    del weights
    gc.collect()
    assert not any(weight() is not None for weight in found)


def test_children_that_swap_names() -> None:
    """Their order stays: only their names tell."""
    layers = "self.one = nn.Linear(8, 8)\nself.two = nn.Linear(8, 8)"
    forward = "return self.head(self.two(self.one(self.body(x)).tanh()))"
    pair = make_pair_of(model_source(forward, init=layers), "1GB", "per-layer")
    left = []
    for model in pair.models():
        run_steps(model, pair)
        model.zero_grad()
        one, two = model.one, model.two
        del model.one, model.two
        model.two, model.one = one, two
        left.append(run_steps(model, pair))
    assert_same(*left)


def test_a_parameter_that_is_set_again_comes_last(deep: Pair) -> None:
    left = []
    for model in deep.models():
        run_steps(model, deep)
        model.zero_grad()
        layer: Any = model.get_submodule("layers.1.up")
        weight = layer.weight
        del layer.weight
        layer.weight = weight
        left.append(run_steps(model, deep))
    assert_same(*left)


@pytest.mark.limit(
    "tensors that are plain attributes and change from step to step, of up to 32 numbers, or "
    "where Python reads their numbers",
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

    told = r"scale is float32\[4\] \[2\.0, .*\], planned for float32\[4\] \[1\.0, 2\.0"
    with pytest.raises(ValueError, match=told + COMMAND):
        _call(pair, change)
    _, planned = pair.models()
    args, _ = pair.inputs()
    planned(*args)
    planned.scale.mul_(2)  # the same object
    with pytest.raises(ValueError, match=told + COMMAND):
        planned(*args)


def test_a_table_that_each_construction_draws_is_read() -> None:
    source = model_source(
        "return self.head(self.body(x) * self.table)", init="self.table = torch.randn(6, 8)"
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    table, left = torch.randn(6, 8), []
    for model in pair.models():
        vars(model)["table"] = table
        left.append(run_steps(model, pair))
    assert_same(*left)


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
    planned({"z": 0, "x": (torch.randn(6, 8),)}, torch.ones(8), scale=2.0)  # for forward the same


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
    "one more argument": (({"x": [x]}, x[0], x[0]), {"scale": 2.0}, r"rest is \(float32\[8\]"),
    "one argument less": (({"x": [x]},), {"scale": 2.0}, r"rest is \(\), planned for \("),
    "one more option": (({"x": [x]}, x[0]), {"scale": 2.0, "y": 1}, r"options is \{'y': 1\}"),
    "one more in a list": (({"x": [x, x]}, x[0]), {"scale": 2.0}, "batch is "),
    "an empty dict": (({}, x[0]), {"scale": 2.0}, r"batch is \{\}"),
}


@pytest.mark.limit(
    "other numbers, options or keywords than the example's, or other lists and dicts where "
    "`forward` goes by their kind, their order or all that is in them",
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


HELD = """\
import enum
from dataclasses import dataclass, field
from functools import partial
from typing import Any, OrderedDict

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Way(enum.Enum):
    PLAIN = 1
    DOUBLE = 2


@dataclass
class Config:
    scale: float = 1.5
    name: str = "run"
    kind: str | None = None
    itself: "Config | None" = None
    powers: list[int] = field(default_factory=lambda: [1, 2])


SCALE = 1.25


class Attributes(dict):
    __getattr__ = dict.__getitem__


def scaled(by: float):
    return lambda x: x * by


class Layer(nn.Module):
    gain = 0.5
    options = Attributes(draw=True)

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.leak, self.product = partial(F.leaky_relu, negative_slope=0.25), np.prod
        self.times, self.rows, self.exact = scaled(0.5), slice(0, 4), torch.float32
        self.config, self.act = config, F.gelu
        self.table = {"shift": 0.5, "_notes": list({"a", "b"})}  # in any order
        self.hooks = OrderedDict[int, Any]()  # knows the alias that made it
        self._hidden, self.way, self.seen = 0.25, Way.PLAIN, []
        self.lin = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        for hook in self.hooks.values():
            x = hook(x)
        return self.more(self.act(self.lin(x)))

    def more(self, x: Tensor) -> Tensor:
        x = x * self._hidden + self.table["shift"] * (self.config.itself is not None)
        if self.way is Way.DOUBLE:
            x = 2 * x
        x = self.times(self.leak(x)).to(self.exact) * float(self.product([1, 2]))
        if self.options.draw:
            x = self.draw_mask(x)
        x = torch.cat([x[self.rows] * self.gain, x[4:] * SCALE])
        return sum(x**n for n in self.config.powers) * self.config.scale


    def draw_mask(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.25)


class Net(nn.Module):
    def __init__(self, config: Config | None = None) -> None:
        super().__init__()
        self.config = config or Config()
        self.config.itself = self.config
        self.layers = nn.ModuleList(Layer(self.config) for _ in range(2))
        self.head = nn.Linear(16, 16)
        self.head.weight = self.layers[0].lin.weight

    def forward(self, x: Tensor) -> Tensor:
        if self.config.kind is None:
            self.config.kind = "regression"  # as libraries do
        for layer in self.layers:
            x = layer(x)
        return self.loss(self.head(x)) if self.config.kind else x

    def loss(self, x: Tensor) -> Tensor:
        return self.halved(x).square().mean() * self.tenth

    @staticmethod
    def halved(x: Tensor) -> Tensor:
        return x / 2

    @property
    def tenth(self) -> float:
        return 0.1


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor, ...]:
    return (torch.randn(8, 16),)
"""


def test_steps_of_another_process(held: Pair) -> None:
    """Nothing that is compared has an address in it, or an order that changes."""
    place = Path(str(held.planned.__file__))
    spoken = "import sys; sys.path.insert(0, '.'); import {0} as m; "
    spoken += "m.build_model()(*m.example_inputs()).backward(); print('ran')"
    code = spoken.format(place.stem)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=place.parent, capture_output=True, text=True, check=False
    )
    assert done.stdout == "ran\n", done.stderr


def test_what_the_model_itself_holds() -> None:
    source = model_source(
        "return (self.head(self.body(x)) * self.scale).sum()",
        init="self.scale = nn.Parameter(torch.ones(4))",
    )
    pair = make_pair_of(source, "1GB", "per-layer")
    told = r"\.py: the model is model\(scale: float32\[4\] frozen\), planned for model\(scale: "
    _, planned = pair.models()
    planned.scale.requires_grad_(False)
    with pytest.raises(ValueError, match=told):
        planned(*pair.inputs()[0])


@pytest.fixture(scope="module")
def held() -> Pair:
    """Return a model that holds what is no number and no tensor."""
    return make_pair_of(HELD, "1GB", "per-layer")


def _names(model: Any) -> dict[str, Any]:
    """Return the global names of the file that a model's layers are written in."""
    names: dict[str, Any] = type(model.layers[0]).forward.__globals__
    return names


HELD_CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "a config's number": (
        lambda m: setattr(m.config, "scale", 2.0),
        r"config\.scale is 2\.0, planned for 1\.5",
    ),
    "a config's list": (
        lambda m: m.config.powers.append(3),
        r"config\.powers is list \[1, 2, 3\], planned for list \[1, 2\]",
    ),
    "another config": (
        lambda m: setattr(m.layers[1], "config", type(m.config)(9.0)),
        r"layers\.1\.config is Config object, planned for config",
    ),
    "a dict": (
        lambda m: m.layers[0].table.update(shift=2.0),
        r"layers\.0\.table\[shift\] is 2\.0, planned for 0\.5",
    ),
    "a private number": (
        lambda m: setattr(m.layers[1], "_hidden", 1.0),
        r"layers\.1\._hidden is 1\.0, planned for 0\.25",
    ),
    "an enum": (
        lambda m: setattr(m.layers[0], "way", type(m.layers[0].way)(2)),
        r"way is <Way\.DOUBLE: 2>, planned for <Way\.PLAIN: 1>",
    ),
    "a function": (
        lambda m: setattr(m.layers[0], "act", torch.tanh),
        r"layers\.0\.act is function \S*tanh, planned for function gelu",
    ),
    "a layer's method": (
        lambda m: setattr(m.layers[0], "more", torch.tanh),
        r"layers\.0\.more is function \S*tanh, planned for function Layer\.more",
    ),
    "a layer's forward": (
        lambda m: setattr(m.layers[0].lin, "forward", torch.tanh),
        r"layers\.0\.lin is Linear\(.*\) with \S*tanh, planned for Linear\(.*\)\.",
    ),
    "a partial": (
        lambda m: setattr(m.layers[0], "leak", partial(F.leaky_relu)),
        r"layers\.0\.leak\.keywords is dict \{\}, planned for dict \{'negative_slope': 0\.25\}",
    ),
    "what a partial binds": (
        lambda m: m.layers[0].leak.keywords.update(negative_slope=1),
        r"layers\.0\.leak\.keywords is dict \{'negative_slope': 1\}, planned for",
    ),
    "what a function was made with": (
        lambda m: setattr(m.layers[1], "times", _names(m)["scaled"](3.0)),
        r"layers\.1\.times\.__closure__\[0\]\.cell_contents is 3\.0, planned for 0\.5",
    ),
    "a slice": (
        lambda m: setattr(m.layers[1], "rows", slice(1, 5)),
        r"layers\.1\.rows is slice\(1, 5, None\), planned for slice\(0, 4, None\)",
    ),
    "a dtype": (
        lambda m: setattr(m.layers[1], "exact", torch.float64),
        r"layers\.1\.exact is torch\.float64, planned for torch\.float32",
    ),
    "a method of the model": (
        lambda m: setattr(m, "loss", torch.mean),
        r"loss is function \S*mean, planned for function Net\.loss",
    ),
    "untied weights": (
        lambda m: setattr(m.head, "weight", nn.Parameter(m.head.weight.detach().clone())),
        r"head is Linear\(weight: float32\[16, 16\], .*planned for .*weight: is layers\.0\.lin\.w",
    ),
}


@pytest.mark.limit(
    "what configs, lists, dicts, private attributes, functions, classes or numbers of the file "
    "hold and `forward` reads, functions and methods put in place of others, weights untied since "
    "planning",
    "an error with what it is and what it was planned for: a row of `ASSUMED` or `HELD`",
)
@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize(("change", "told"), HELD_CHANGES.values(), ids=HELD_CHANGES)
def test_what_modules_hold(
    held: Pair, change: Callable[[Any], object], told: str, *, after_a_step: bool
) -> None:
    _, planned = held.models()
    args, _ = held.inputs()
    if after_a_step:
        planned(*args)
    change(planned)
    with pytest.raises(ValueError, match=told):
        planned(*args)


Patch = pytest.MonkeyPatch
CLASS_CHANGES: dict[str, tuple[Callable[[Any, Patch], object], str]] = {
    "an attribute of a layer's class": (
        lambda m, p: p.setattr(type(m.layers[0]), "gain", 2.0),
        r"layers\.0\.gain is 2\.0, planned for 0\.5",
    ),
    "a method of a layer's class": (
        lambda m, p: p.setattr(type(m.layers[0]), "more", lambda _, x: x),
        r"layers\.0\.more is function \S*<lambda>, planned for function Layer\.more",
    ),
    "a forward of torch's": (
        lambda m, p: p.setattr(nn.Linear, "forward", lambda _, x: x),
        r"layers\.0\.lin is Linear\(.*\) with <lambda>, planned for",
    ),
    "a property": (
        lambda m, p: p.setattr(type(m), "tenth", property(lambda _: 2.0)),
        r"tenth is function \S*<lambda>, planned for function Net\.tenth",
    ),
    "a static method": (
        lambda m, p: p.setattr(type(m), "halved", staticmethod(lambda x: x)),
        r"halved is function \S*<lambda>, planned for function Net\.halved",
    ),
    "a number of the file": (
        lambda m, p: p.setitem(_names(m), "SCALE", 2.0),
        r"SCALE is 2\.0, planned for 1\.25",
    ),
    "another class": (
        lambda m, p: setattr(m.layers[0].lin, "__class__", type("Wide", (nn.Linear,), {})),
        r"layers\.0\.lin is Wide\(.*\) with Linear\.forward, planned for Linear\(",
    ),
}


@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize(("change", "told"), CLASS_CHANGES.values(), ids=CLASS_CHANGES)
def test_what_classes_and_the_file_hold(
    held: Pair,
    change: Callable[[Any, Patch], object],
    told: str,
    monkeypatch: Patch,
    *,
    after_a_step: bool,
) -> None:
    _, planned = held.models()
    args, _ = held.inputs()
    if after_a_step:
        planned(*args)
    change(planned, monkeypatch)
    with pytest.raises(ValueError, match=told):
        planned(*args)


def test_a_subclass_that_has_another_number(held: Pair) -> None:
    _, planned = held.models()
    planned.__class__ = type("Mine", (type(planned),), {"tenth": 0.2})
    with pytest.raises(ValueError, match=r"tenth is 0\.2, planned for function Net\.tenth"):
        planned(*held.inputs()[0])


def test_what_forward_does_not_read_may_change(held: Pair) -> None:
    _, planned = held.models()
    args, _ = held.inputs()
    _names(planned)["loss"] = 0.0  # of a loop in the same file, where a method is called like it
    planned.config.name = "another"
    planned.layers[0].seen.append(1.0)
    planned.layers[0].table["_notes"].reverse()
    planned.log = ["a trainer's"]
    planned(*args).backward()
    planned.config.name = "a third"
    assert planned(*args) is not None


def test_a_method_of_a_subclass(held: Pair) -> None:
    _, planned = held.models()
    kind = type(planned)
    planned.__class__ = type("Mine", (kind,), {"loss": lambda _, x: x.abs().mean()})
    with pytest.raises(ValueError, match=r"loss is function \S*<lambda>, planned for"):
        planned(*held.inputs()[0])


def test_a_subclass_with_methods_of_its_own(held: Pair) -> None:
    _, planned = held.models()
    kind = type(planned)
    planned.__class__ = type("Mine", (kind,), {"log": lambda _, x: x.abs().mean()})
    assert planned(*held.inputs()[0]) is not None
