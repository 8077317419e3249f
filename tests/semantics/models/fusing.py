"""Two small layers with what fuses: a masked softmax, a dropout, a norm, GELU."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, TOKENS = 64, 32


class Layer(nn.Module):
    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.25)
        self.register_buffer("mask", torch.ones(TOKENS, TOKENS, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        scores = (h @ h.transpose(1, 2) / 8.0).masked_fill(self.mask, float("-inf"))
        mixed = self.drop(F.softmax(scores, dim=-1)) @ h
        return x + self.down(F.gelu(self.up(mixed)))


class Fusing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x.square().mean()


def build_model() -> nn.Module:
    return Fusing()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(16, TOKENS, WIDTH),)
