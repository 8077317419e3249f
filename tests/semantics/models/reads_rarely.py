"""Reads values in the ways that are easily overlooked; each changes the loss or a gradient."""

import copy
import functools
import os
import types
from collections import UserDict
from dataclasses import dataclass
from fractions import Fraction

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize

BY_NAME = 1.5
IN_BACKWARD = 2.0
OF_A_CACHE = 1.25
WIDTH = 8


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        return -gradient * IN_BACKWARD


@functools.lru_cache
def ramp(width: int) -> Tensor:
    return torch.arange(width) * OF_A_CACHE


def gained(function):
    gains = [1.5]

    @functools.wraps(function)
    def call(*args):
        return function(*args) * gains[0]

    return call


class Rate(float):
    pass


class Shift:
    def __init__(self) -> None:
        self.by, self.unread = 0.5, 0.0

    def add(self, x: Tensor) -> Tensor:
        return x + self.by


@dataclass(frozen=True)
class Frozen:
    scale: float = 1.5
    name: str = "run"


class Descriptors:
    @functools.cached_property
    def total(self) -> float:
        return sum(self.parts)

    def __init__(self) -> None:
        self.parts = [1.0, 0.5]


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.by = 0.5

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.by


class Base(nn.Module):
    rate = 0.25

    def forward(self, x: Tensor, by: list[float] = [1.5]) -> Tensor:  # noqa: B006
        return x * by[0]


class Layer(Base):
    rate = 0.75

    def __init__(self) -> None:
        super().__init__()
        self.lin = nn.Linear(8, 8)
        parametrize.register_parametrization(self.lin, "weight", Scaled())

    @gained
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.lin(x)) + super().rate


class ReadsRarely(nn.Module):
    rate = 0.5
    log: list[float] = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))
        self.norm = parametrizations.weight_norm(nn.Linear(8, 8), dim=0)
        self.hooked = torch.nn.utils.weight_norm(nn.Linear(8, 8), dim=0)
        self.direct, self.looked_up, self.unread = 1.5, 0.75, 0.0
        self.add, self.shift = Shift().add, Shift()
        self.get = {"scale": 1.25, "unread": 0.0}.get
        self.prior = torch.distributions.Normal(torch.zeros(8), torch.full((8,), 2.0))
        self.plain = [nn.BatchNorm1d(8, affine=False).eval(), nn.Dropout(0.25)]
        self.frozen, self.fraction, self.made = Frozen(), Fraction(3, 2), Descriptors()
        self.copied = Frozen()
        self.held = [types.SimpleNamespace(scale=1.5), {"of": [Shift()]}]
        self.user, self.clip = UserDict(scale=0.5, unread=0.0), 0.5
        self.by_dtype = {torch.float32: 0.5, "a].b": 1.25, 2.5: 0.75}
        self.space = types.SimpleNamespace(scale=1.25, unread=0.0)
        self.slope = Rate(0.75)
        self.table, self.order = types.MappingProxyType({"scale": 1.5}), torch.contiguous_format

    @classmethod
    def halved(cls, x: Tensor) -> Tensor:
        return x * cls.rate

    @torch.enable_grad()
    def with_gradient(self, x: Tensor) -> Tensor:
        return x * 1.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = Reversed.apply(self.with_gradient(layer(x)))
        x = self.hooked(self.norm(x)).log_softmax(-1) * vars(self)["direct"] + self.__dict__.get(
            "looked_up", 0
        )
        x = self.halved(self.shift.add(self.add(x))) * (self.get("scale") or 1.0)
        x = x + self.prior.log_prob(x) * BY_NAME + ramp(WIDTH)
        x.register_hook(lambda gradient: gradient * self.clip)
        for layer in self.plain:
            x = layer(x)
        x = x * self.frozen.scale + float(self.fraction) + self.made.total
        x = self.held[1]["of"][0].add(x) * self.held[0].scale * self.user["scale"]
        x = x * self.by_dtype[x.dtype] + self.by_dtype["a].b"] + self.by_dtype[2.5]
        x = x * copy.copy(self.copied).scale
        x = x * self.slope * self.table["scale"]
        x = x * (2.0 if self.order is torch.channels_last else 1.5)
        return (
            (x * self.space.scale * float(os.environ.get("REMAT_GEN_TEST_SCALE", "1")))
            .square()
            .mean()
        )


def build_model() -> nn.Module:
    return ReadsRarely()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 8),)
