"""A tiny GPT: two layers, dropout, the loss inside of forward."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.ln_2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.ln_1(x)).chunk(3, dim=2)
        scores = (q @ k.transpose(1, 2)).softmax(dim=2)
        x = x + scores @ v
        return x + self.drop(self.down(F.gelu(self.up(self.ln_2(x)))))


class Tiny(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.wte = nn.Embedding(64, 32)
        self.h = nn.ModuleList(Layer(32) for _ in range(layers))
        self.head = nn.Linear(32, 64, bias=False)
        self.head.weight = self.wte.weight  # tied

    def forward(self, ids: Tensor, labels: Tensor) -> Tensor:
        """Return the loss for ids and labels `[B, T]`."""
        x = self.wte(ids)
        for layer in self.h:
            x = layer(x)
        logits = self.head(x)
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


def build_model() -> nn.Module:
    return Tiny()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randint(64, (4, 16)), torch.randint(64, (4, 16))
