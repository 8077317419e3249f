"""A stack of layers with dropout, whose weights are small beside what they keep."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    """Two products around a GELU, and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(32, 64)
        self.down = nn.Linear(64, 32)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(nn.functional.gelu(self.up(x))))


class Stack(nn.Module):
    """Layers and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def build_model() -> nn.Module:
    return Stack()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(512, 32),)
