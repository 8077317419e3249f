"""Reads values from wherever Python keeps them; each changes the loss."""

import argparse
import functools
import types
from collections import OrderedDict, deque, namedtuple
from dataclasses import dataclass, field
from enum import Enum
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn


class Way(Enum):
    ONE = 1
    TWO = 2


Pair = namedtuple("Pair", "left right")
SCALE = 1.5
LIST = [2.0]
NESTED = {"a": {"b": {"c": 1.25}}, "unread": 0.0}
TENSOR = torch.full((8,), 2.0)
TENSORS = [torch.full((8,), 1.5)]
SPACE = types.SimpleNamespace(scale=0.5)


@dataclass
class Config:
    scale: float = 2.0
    lr: float = 0.1
    sizes: list[float] = field(default_factory=lambda: [1.0, 2.0])


class Slots:
    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 1.5


class Scaler:
    factor = 1.25

    def __init__(self) -> None:
        self.z = 2.0

    def go(self, x: Tensor) -> Tensor:
        return x * self.z

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.z * self.factor

    @property
    def half(self) -> float:
        return self.z / 2


class Held:
    tensor = torch.full((8,), 0.5)
    numbers: ClassVar[list[float]] = [1.0, 3.0]

    @classmethod
    def third(cls) -> float:
        return cls.numbers[1]


def defaulting(x: Tensor, by: list[float] = [1.5]) -> Tensor:  # noqa: B006
    return x * by[0]


def keyword(x: Tensor, *, by: float = 0.5) -> Tensor:
    return x * by


def making(by: float, tensor: Tensor):
    def made(x: Tensor) -> Tensor:
        return x * by + tensor

    made.extra = 0.75
    return made


made = making(2.0, torch.full((8,), 0.25))
partial = functools.partial(keyword, by=0.25)


class Base(nn.Module):
    bias_of_class = 0.125


class Layer(Base):
    rate = 0.5

    def __init__(self, i: int) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        self.gain = 1.0 + i
        self._hidden = 0.75
        self.options = {"_k": 2.0, "shift": 1.0, "unread": 9.0}
        self.x0, self.x1 = 0.5, 0.25

    def forward(self, x: Tensor) -> Tensor:
        x = self.lin(x) * self.gain * self._hidden * self.options["_k"]
        x = x + type(self).rate + self.bias_of_class
        return x * (self.options.get("absent") or 1.0) * getattr(self, f"x{int(x.ndim > 9)}")


class Reads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(i) for i in range(3))
        self.config = Config()
        self.w = {"ce": torch.tensor(1.0), "kl": torch.tensor(0.0)}
        self.rows = [torch.full((8,), 2.0), torch.full((8,), 3.0)]
        self.space = types.SimpleNamespace(inner=types.SimpleNamespace(scale=2.0), t=torch.ones(8))
        self.args = argparse.Namespace(width=1.5, name="run")
        self.big = np.ones(1200)
        self.small = np.array([1.0, 2.0])
        self.long = [1.0] * 2000
        self.deep = {"a": {"a": {"a": {"a": {"a": {"a": {"a": 2.0}}}}}}}
        self.pair = Pair(1.5, 2.5)
        self.queue = deque([1.0, 2.0])
        self.ordered = OrderedDict(first=1.5)
        self.members = {"a", "b"}
        self.slots, self.scaler, self.way = Slots(), Scaler(), Way.ONE
        self.act, self.scale_tensor = torch.tanh, torch.full((8,), 1.5)
        self.kwargs = {"by": 1.25}
        self.log: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        x = self.act(x) * self.config.scale * self.config.sizes[1] * self.scale_tensor
        x = x * self.w["ce"] + self.w["kl"] + self.rows[0] * x + self.rows[1]
        x = x * self.space.inner.scale + self.space.t * self.args.width
        x = x * float(self.big[700]) + float(self.small[1]) + self.long[1500]
        x = x * self.deep["a"]["a"]["a"]["a"]["a"]["a"]["a"] + self.pair.left
        x = x + self.queue[0] + self.ordered["first"] + len(self.members) + self.slots.value
        x = self.scaler.go(self.scaler(x)) + self.scaler.half
        x = x * (2.0 if self.way is Way.TWO else 1.0) + SCALE + LIST[0] + SPACE.scale
        x = x + NESTED["a"]["b"]["c"] + TENSOR + TENSORS[0] + Held.tensor + Held.third()
        x = partial(made(keyword(defaulting(x)))) + made.extra
        return keyword(x, **self.kwargs).square().mean()


def build_model() -> nn.Module:
    return Reads()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 8),)
