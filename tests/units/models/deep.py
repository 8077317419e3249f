"""A small GPT: layers between an embedding and a head."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH = 16


class Layer(nn.Module):
    """Attention and MLP, with dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.ln = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln(x)).chunk(3, -1)
        x = x + self.drop(torch.softmax(q @ k.transpose(-2, -1), -1)) @ v
        return x + self.down(F.gelu(self.up(x)))


class Net(nn.Module):
    """Layers in a row, and the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.head = nn.Linear(WIDTH, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer in self.h:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randint(32, (4, 12)),)
