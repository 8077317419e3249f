"""What classes of the file hold and forward reads there: objects, other classes, the one instance.

And functions of a library that a name of the file, or of a class, stands for.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from pairs import Pair, make_pair_of
from sources import model_source
from torch import nn

PRELUDE = """
import functools
import logging
import sys
LOG = logging.getLogger(__name__)
ACT = torch.tanh
Loss = nn.L1Loss

class Config:
    def __init__(self): self.rate = 1.5

class Registry:
    config = Config()
    class Train:
        rate, table = 0.5, torch.ones(4)

class Single:
    _instance = None
    @classmethod
    def get(cls): return cls._instance

Single._instance = Config()

class Kind(type):
    share = 0.5

class Chosen(metaclass=Kind):
    act = F.relu

class Kinds:
    all = {}
    def __init_subclass__(cls): Kinds.all[cls.__name__] = cls

class First(Kinds):
    rate = 1.5

class Named(list):
    share = 0.5

class Holder:
    late = 1.5
    @classmethod
    def get(kind): return kind.late

SHARE = 2.0
"""
INIT = """
self.named, self.holder = Named([1.0]), Holder()
"""
FORWARD = """
y = self.head(self.body(x)) * Registry.config.rate * Registry.Train.rate * Single.get().rate
logging.getLogger(__name__).debug("a step")
y = self.gate(Chosen.act(y) * Chosen.share) * self.power(2)
y = y * Kinds.all["First"].rate * self.named.share * self.holder.get()
y = y * getattr(Registry, "absent", 1.0) * getattr(type(self), "missing", 1.0)
y = y * getattr(sys.modules[__name__], "SHARE")
if hasattr(Single, "late"): y = y + 1
y = y * (2 if getattr(self.layers[0].up, "training") else 1)
return ACT(y * Registry.Train.table * self.Options.Inner.rate) + Loss()(y, y * 0)
"""
MEMBERS = """
    class Options:
        class Inner:
            rate = 2

    act = staticmethod(F.gelu)

    def _gate(self, k, x):
        return self.act(x * k)

    gate = functools.partialmethod(_gate, 2.0)

    @staticmethod
    @functools.lru_cache
    def power(n):
        return 2.0**n
"""
CHANGES: dict[str, tuple[Callable[[Any], tuple[object, str]], Any, str]] = {
    "Registry.config.rate": (lambda file: (file.Registry.config, "rate"), 9, "9"),
    "Single._instance.rate": (lambda file: (file.Single.get(), "rate"), 9, "9"),
    "Registry.Train.rate": (lambda file: (file.Registry.Train, "rate"), 9, "9"),
    "Registry.Train.table": (
        lambda file: (file.Registry.Train, "table"),
        torch.zeros(4),
        "float32",
    ),
    "Options.Inner.rate": (lambda file: (file.Model.Options.Inner, "rate"), 9, "9"),
    "ACT": (lambda file: (file, "ACT"), torch.sin, "function"),
    "Loss": (lambda file: (file, "Loss"), nn.MSELoss, "class MSELoss"),
    "Chosen.act": (lambda file: (file.Chosen, "act"), F.silu, "function silu"),
    "Chosen.share": (lambda file: (file.Kind, "share"), 0.25, "0.25"),
    "act": (lambda file: (file.Model, "act"), staticmethod(F.silu), "function silu"),
    "gate.args": (
        lambda file: (file.Model, "gate"),
        functools.partialmethod(lambda self, k, x: x, 3.0),
        "(3.0,)",
    ),
    "Kinds.all[First].rate": (lambda file: (file.First, "rate"), 9, "9"),
    "named.share": (lambda file: (file.Named, "share"), 9, "9"),
    "late": (lambda file: (file.Holder, "late"), 9, "9"),
    "Registry.absent": (lambda file: (file.Registry, "absent"), 9, "9"),
    "Single.late": (lambda file: (file.Single, "late"), 9, "9"),
    "__class__.missing": (lambda file: (file.Model, "missing"), 9, "9"),
    "SHARE": (lambda file: (file, "SHARE"), 9, "9"),
    "power": (lambda file: (file.Model, "power"), staticmethod(lambda n: 1.0), "function"),
}


@pytest.fixture(scope="module")
def pair() -> Pair:
    text = model_source(FORWARD, init=INIT, prelude=PRELUDE)
    with_members = text.replace("class Model(nn.Module):", f"class Model(nn.Module):{MEMBERS}", 1)
    return make_pair_of(with_members, "1GB", "per-layer")


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named(
    pair: Pair, name: str, later: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the first step of a process, and on later ones: both were silent."""
    place, value, now = CHANGES[name]
    (args, _), model = pair.inputs(), pair.models()[1]
    if later:
        model(*args)
    monkeypatch.setattr(*place(pair.planned), value, raising=False)
    with pytest.raises(ValueError, match=r"planned for") as error:
        model(*args)
    assert f"{name} is {now}" in str(error.value)


def test_the_name_of_the_file_is_none_of_it(pair: Pair) -> None:
    """A logger's `__name__` was compared with that of the file it was planned from."""
    args, _ = pair.inputs()
    results = []
    for model in pair.models():
        torch.manual_seed(3)
        results.append(model(*args))
    assert torch.equal(*results)
    assert "__name__" not in pair.text.partition("ASSUMED")[2].partition("HOOKS")[0]


def test_a_mode_that_is_asked_for_by_its_name(pair: Pair) -> None:
    (args, _), model = pair.inputs(), pair.models()[1]
    model.layers[0].up.eval()
    with pytest.raises(ValueError, match=r"layers\.0\.up\.training is False, planned for True"):
        model(*args)
