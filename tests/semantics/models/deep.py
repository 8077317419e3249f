"""Many small layers with dropout: the lowest budget re-runs whole blocks in other blocks."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 16


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.25)
        self.register_buffer("scale", torch.full((WIDTH,), 0.5))

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.gelu(self.up(self.norm(x)))
        return torch.tanh(x + self.drop(self.down(hidden)) * self.scale)


class Deep(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(10))
        self.head = nn.Linear(WIDTH, 8)

    def forward(self, x: Tensor, targets: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x), targets)


def build_model() -> nn.Module:
    return Deep()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(64, WIDTH), torch.randint(8, (64,))
