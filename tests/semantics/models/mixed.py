"""Dropout, BatchNorm, in-place operations, a tied head, frozen and unused parameters; a loss."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 24


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)
        self.up = nn.Linear(WIDTH, 3 * WIDTH)
        self.down = nn.Linear(3 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        hidden = hidden.mul(2.0).relu_()
        return x + self.drop(self.down(hidden).add_(1.0))


class Mixed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 32, bias=False)
        self.head.weight = self.embed.weight
        self.unused = nn.Linear(WIDTH, WIDTH)
        for parameter in self.layers[0].parameters():
            parameter.requires_grad_(False)
        self.layers[2].up.bias.requires_grad_(False)
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        self.calls += 1
        x = self.embed(ids) * self.scale
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(self.norm(x)), targets)


def build_model() -> nn.Module:
    return Mixed()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randint(32, (64,)), torch.randint(32, (64,))
