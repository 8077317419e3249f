"""Layers whose weights are large beside what they are multiplied with: 1 MiB each."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 256
HIDDEN = 1024


class Layer(nn.Module):
    """Three products, one of them with the transposed weight, and one that does not train."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.gate = nn.Linear(HIDDEN, WIDTH, bias=False)
        self.down = nn.Parameter(torch.randn(HIDDEN, WIDTH) * HIDDEN**-0.5)
        self.frozen = nn.Linear(WIDTH, WIDTH).requires_grad_(False)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.up(self.norm(x)))
        y = torch.sigmoid(self.gate(y)) * (y @ self.down)
        return x + self.drop(self.frozen(y))


class Model(nn.Module):
    """The first layer's norm is the last one's, too; a loss inside."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(3))
        self.layers[2].norm = self.layers[0].norm
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x * self.scale
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def build_model() -> nn.Module:
    return Model()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(48, WIDTH),)
