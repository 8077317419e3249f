"""Hooks on submodules that are there when a model is planned are a part of its forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import Pair, make_pair_of
from sources import model_source
from steps import assert_right, assert_same, run_steps

from remat_gen.ir.errors import TraceError

SOURCE = """\
import torch
from torch import Tensor, nn

GAIN = 1.5


def doubled(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    return inputs[0] * 2.0


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 16), nn.Linear(16, 8)
        self.rate = 0.5
        self.up.register_forward_hook(lambda module, inputs, output: output.tanh() * GAIN)
        self.up.register_forward_pre_hook(doubled)
        self.down.register_forward_hook(self.scaled)

    def scaled(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return output * self.rate

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.up(x)).square().mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 8),)
"""
CHECKPOINTED = """\
import torch
from transformers import GPT2Config, GPT2LMHeadModel


def build_model():
    config = GPT2Config(vocab_size=32, n_positions=16, n_embd=16, n_layer=2, n_head=2)
    model = GPT2LMHeadModel(config).train()
    model.transformer.wte.requires_grad_({grad})
    model.{enable}()
    return model


def example_inputs():
    ids = torch.arange(16).reshape(2, 8)
    return {{"input_ids": ids, "labels": ids, "use_cache": False}}
"""
Change = Callable[[Any, Any], object]


@pytest.fixture(scope="module")
def pair() -> Pair:
    return make_pair_of(SOURCE)


def test_they_are_planned(pair: Pair) -> None:
    assert_same(*(run_steps(model, pair) for model in pair.models()))


CHANGES: dict[str, tuple[Change, str]] = {
    "what one reads of its model": (
        lambda m, f: setattr(m, "rate", 9.0),
        r"rate is 9\.0, planned for 0\.5",
    ),
    "what one reads of its file": (
        lambda m, f: setattr(f, "GAIN", 9.0),
        r"GAIN is 9\.0, planned for 1\.5",
    ),
    "one is gone": (
        lambda m, f: m.up._forward_pre_hooks.clear(),
        r"up is Linear\(.*\) with hook <lambda>, planned for Linear\(.*\) with hook doubled with",
    ),
    "another in its place": (
        lambda m, f: m.up._forward_hooks.update(dict.fromkeys(m.up._forward_hooks, m.scaled)),
        r"up is Linear\(.*\) with hook doubled with hook Net\.scaled, planned for",
    ),
    "one more": (
        lambda m, f: m.down.register_forward_hook(m.scaled),
        r"down is Linear\(.*\) with hook Net\.scaled with hook Net\.scaled, planned for",
    ),
    "one of backward": (
        lambda m, f: m.down.register_full_backward_hook(lambda *_: None),
        r"down is Linear\(.*\) with hook Net\.scaled with hook .*<lambda>, planned for",
    ),
}


@pytest.mark.limit(
    "hooks put on submodules, or taken off, later (also by `fully_shard` on single layers)",
    "an error with the module's name; the planned forward would not call them",
)
@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize(("change", "says"), CHANGES.values(), ids=CHANGES)
def test_a_change_is_named(
    pair: Pair, change: Change, says: str, seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pair.planned, "GAIN", pair.planned.GAIN)
    model = pair.planned.build_model()
    if seen:
        model(*pair.planned.example_inputs())
    change(model, pair.planned)
    with pytest.raises(ValueError, match=says):
        model(*pair.planned.example_inputs())


def test_a_method_of_another_module_is_refused() -> None:
    """By its name alone it could be that of any module of this class."""
    source = SOURCE.replace("hook(self.scaled)", "hook(self.up.extra_repr)")
    with pytest.raises(TraceError, match=r"down has a hook \(Linear\.extra_repr\)"):
        make_pair_of(source)


@pytest.mark.parametrize("grad", [True, False])
def test_checkpointing_of_transformers(grad: bool) -> None:
    """It puts a hook on the embedding, whose output then requires grad."""
    transformers = pytest.importorskip("transformers")
    names = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    enable = next(n for n in names if hasattr(transformers.PreTrainedModel, n))
    pair = make_pair_of(CHECKPOINTED.format(grad=grad, enable=enable), "1GB", "per-layer")
    torch.manual_seed(0)
    assert_right(pair)


LAZY = """
if not self.registered:
    self.layers[0].up.register_forward_hook(lambda m, i, o: setattr(self, "hidden", o))
    self.registered = True
y = self.head(self.body(x))
hidden, self.hidden = self.hidden, None
return y.square().mean() + hidden.tanh().mean()
"""


def test_hooks_that_forward_puts_on_in_its_first_step() -> None:
    """Each run of planning left one more, which every step was then compared with."""
    source = model_source(LAZY, init="self.registered, self.hidden = False, None")
    assert_right(make_pair_of(source, "1GB", "per-layer"))


def test_a_buffer_that_forward_lets_require_a_gradient() -> None:
    """It did so after planning, and no step of a fresh model was as planned."""
    forward = "self.zero.requires_grad_()\nreturn self.head(self.body(x)) + self.zero"
    pair = make_pair_of(
        model_source(forward, init='self.register_buffer("zero", torch.zeros(4))'), "1GB", "none"
    )
    for model in pair.models():
        model(*pair.inputs()[0]).sum().backward()
