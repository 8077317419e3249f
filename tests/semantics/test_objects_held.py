"""What plain containers, methods and closures hold of the model, and values that Python cannot see
into: another one since planning is named, before the first step and behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pairs import Pair, make_pair_of
from steps import assert_same, run_steps

HELD = """
import ctypes
import datetime
import multiprocessing
import operator
import pathlib
import re
import weakref

import torch
from torch import nn


class Rate:
    def __init__(self, top):
        self.top = top

    def now(self):
        return self.top


def through(layer):
    return lambda x: torch.tanh(layer(x))


class Net(nn.Module):
    def __init__(self, head="x", first=0):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))
        self.heads = nn.ModuleDict({name: nn.Linear(8, 8) for name in "xy"})
        self.order, self.chosen = [*self.layers[:2]], {"head": self.heads[head]}
        self.pair = self.layers[first], self.layers[2]
        self.run, self.trunk = self.heads[head].forward, through(self.layers[first])
        self.seen = weakref.ref(self.layers[first])
        self.one, self.other = Rate(2.0), Rate(4.0)
        self.rate = self.one.now
        self.shared, self.raw = multiprocessing.Value("d", 2.0), ctypes.c_double(2.0)
        self.flags = bytearray(b"12")
        self.pick, self.age = operator.itemgetter(0), datetime.timedelta(seconds=2)
        self.named, self.where = re.compile("l0"), pathlib.Path("runs/a")

    def forward(self, x):
        for layer in self.order:
            x = torch.relu(layer(x))
        x = self.run(self.trunk(self.chosen["head"](x))) + self.pair[0](x) + self.seen()(x)
        x = x * self.rate() * self.one.top * self.shared.value * self.raw.value * self.flags[0]
        x = x * self.pick((1.0, 2.0)) * self.age.total_seconds()
        x = x * (1.0 if self.named.match("l0") else 2.0)
        return (x * (1.0 if str(self.where).endswith("a") else 2.0)).square().mean()


def build_model():
    return Net()


def example_inputs():
    return (torch.randn(6, 8),)
"""
Change = Callable[[Any], object]

CHANGES: dict[str, tuple[Change, str]] = {
    "order of a list": (lambda m: m.order.reverse(), r"order\[0\] is layers\.1, planned for la"),
    "value of a dict": (
        lambda m: m.chosen.update(head=m.heads["y"]),
        r"chosen\[head\] is heads\.y, planned for heads\.x",
    ),
    "another tuple": (
        lambda m: setattr(m, "pair", (m.layers[3], m.layers[2])),
        r"pair\[0\] is layers\.3, planned for layers\.0",
    ),
    "bound method of a layer": (
        lambda m: setattr(m, "run", m.heads["y"].forward),
        r"run\.__self__ is heads\.y, planned for heads\.x",
    ),
    "closure over a layer": (
        lambda m: setattr(m, "trunk", m.trunk.__globals__["through"](m.layers[1])),
        r"trunk\.__closure__\[0\]\.cell_contents is layers\.1, planned for layers\.0",
    ),
    "weak reference to a layer": (
        lambda m: setattr(m, "seen", __import__("weakref").ref(m.layers[1])),
        r"seen\(\) is layers\.1, planned for layers\.0",
    ),
    "bound method of an object": (
        lambda m: setattr(m, "rate", m.other.now),
        r"rate\.__self__ is Rate object, planned for one",
    ),
    "shared memory": (
        lambda m: setattr(m.shared, "value", 4.0),
        r"shared\._obj is c_double sha256 \w+, planned for",
    ),
    "number of C": (lambda m: setattr(m.raw, "value", 4.0), r"raw is c_double sha256 \w+, planned"),
    "bytes": (lambda m: m.flags.__setitem__(0, 7), r"flags is bytearray .*, planned for bytearray"),
    "getter": (
        lambda m: setattr(m, "pick", __import__("operator").itemgetter(1)),
        r"pick is operator\.itemgetter\(1\), planned for operator\.itemgetter\(0\)",
    ),
    "duration": (
        lambda m: setattr(m, "age", 2 * m.age),
        r"age is datetime\.timedelta\(seconds=4\), planned for datetime\.timedelta\(seconds=2\)",
    ),
    "pattern": (
        lambda m: setattr(m, "named", __import__("re").compile("l1")),
        r"named is re\.compile\('l1'\), planned for re\.compile\('l0'\)",
    ),
    "path": (
        lambda m: setattr(m, "where", m.where.with_name("b")),
        r"where is \w+Path\('runs/b'\), planned for \w+Path\('runs/a'\)",
    ),
}


@pytest.fixture(scope="module")
def held() -> Pair:
    return make_pair_of(HELD, "1GB", "per-layer")


def test_it_is_right(held: Pair) -> None:
    assert_same(*(run_steps(model, held) for model in held.models()))


@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize(("change", "told"), CHANGES.values(), ids=CHANGES)
def test_another_one_is_named(held: Pair, change: Change, told: str, *, after_a_step: bool) -> None:
    _, model = held.models()
    args, _ = held.inputs()
    if after_a_step:
        model(*args)
    change(model)
    with pytest.raises(ValueError, match=told):
        model(*args)
