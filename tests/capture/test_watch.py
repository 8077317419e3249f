"""What tells that a model is as it was: while it says so, nothing is described again."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from remat_gen.capture.observe.assumed import Watch


def other(x: torch.Tensor) -> torch.Tensor:
    return x


def model() -> nn.Sequential:
    net = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.Dropout(0.1)))
    net[0].forward = lambda x: x  # an instance's own
    return net


def watch(net: nn.Module) -> Watch:
    return Watch(net, ["1.0.p", "1.0.training"], SimpleNamespace())


CHANGES: dict[str, Callable[[nn.Sequential], object]] = {
    "an instance's forward": lambda m: setattr(m[0], "forward", other),
    "another's forward": lambda m: setattr(m[1], "forward", other),
    "mode": lambda m: m[1].eval(),
    "attribute": lambda m: setattr(m[1][0], "p", 0.2),
    "class": lambda m: setattr(m[1][0], "__class__", nn.AlphaDropout),
    "layout": lambda m: setattr(m[0].weight, "data", m[0].weight.data.t()),
    "frozen": lambda m: m[0].weight.requires_grad_(False),
    "name": lambda m: m[1]._modules.update(one=m[1]._modules.pop("0")),
    "child": lambda m: m.append(nn.Linear(2, 2)),
    "hook": lambda m: m[1].register_forward_hook(lambda *_: None),
    "gone": lambda m: delattr(m[1][0], "p"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_is_another_is_seen(change: Callable[[nn.Sequential], object]) -> None:
    net = model()
    seen = watch(net)
    assert seen.is_current()
    change(net)
    assert not seen.is_current()


def test_a_class_that_has_another_forward_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    net = model()
    seen = watch(net)
    monkeypatch.setattr(nn.Dropout, "forward", lambda _, x: x)
    assert not seen.is_current()


def test_what_steps_change_is_no_change() -> None:
    net = model()
    seen = watch(net)
    with torch.no_grad():
        net[0].weight.add_(1)
    net[0].weight.grad = torch.ones(2, 2)
    assert seen.is_current()


def test_a_watched_model_goes_at_once_and_its_copy_is_not_watched() -> None:
    net = model()
    vars(net)["_watch"] = watch(net)
    assert copy.deepcopy(net)._watch is None
    gone = weakref.ref(net)
    gc.disable()
    try:
        del net
        assert gone() is None
    finally:
        gc.enable()
