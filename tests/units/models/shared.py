"""Layers that read what others read as well: sums of gradients have eager's order.

A layer calls its own forward again, and its dropout has the name of a helper's part.
"""

import torch
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(24, 24) for _ in range(3))
        self.norm = nn.LayerNorm(24)
        self.up = nn.Linear(24, 72)
        self.down = nn.Linear(72, 24)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor, place: Tensor, again: bool = True) -> Tensor:
        turned = memory.transpose(0, 1)
        q, k, v = self.q(x + place), self.k(turned + place), self.v(turned)
        scores = q.transpose(0, 1) @ k.transpose(0, 1).mT / 24**0.5
        x = x + (scores.softmax(-1) @ v.transpose(0, 1)).transpose(0, 1) + self.q(place)
        x = self.norm(x + self.down(torch.tanh(self.up(self.dropout(x)))))
        return self.forward(x, memory, place, again=False) if again else x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Linear(8, 24)
        self.place = nn.Parameter(torch.randn(16, 1, 24))
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.dropout = nn.Dropout(0.1)
        self.head = nn.Linear(24, 3)

    def forward(self, x: Tensor) -> Tensor:
        memory = torch.tanh(self.encode(x))
        x = first = memory.transpose(0, 1).contiguous() * 0.5
        for layer in self.h:
            x = layer(x, memory, self.place)
        return self.head(self.dropout(x * memory.mean() + first)).pow(2).mean()


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(4, 16, 8),)
