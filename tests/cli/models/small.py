"""A small classifier, quick to plan: for tests of the command line."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(32) for _ in range(2))
        self.head = nn.Linear(32, 8)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the loss for inputs `[B, 32]` and labels `[B]`."""
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x), labels)


def build_model() -> nn.Module:
    return Small()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(256, 32), torch.randint(8, (256,))
