"""A GPT whose mixture of experts no plan of the whole can follow: `.item()`, sizes of values."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, EXPERTS = 16, 3


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


class Experts(nn.Module):
    """Each row goes to one expert; those that get none do not run."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(EXPERTS))

    def forward(self, x: Tensor) -> Tensor:
        rows = x.flatten(0, 1)
        weight, which = self.gate(rows).softmax(-1).max(-1)
        out = torch.zeros_like(rows)
        for i, expert in enumerate(self.experts):
            mine = (which == i).nonzero().squeeze(1)
            if mine.numel():
                out = out.index_add(0, mine, expert(rows[mine]) * weight[mine, None])
        return x + out.view_as(x)


class Net(nn.Module):
    """Layers and experts in turn; the first layer runs once more at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(32, WIDTH)
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.moe = nn.ModuleList(Experts() for _ in range(2))
        self.head = nn.Linear(WIDTH, 32)
        self.said: list[float] = []

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for layer, experts in zip(self.h, self.moe, strict=False):
            x = experts(layer(x))
        self.said = [x.detach().mean().item()]
        x = self.h[0](self.h[2](x))
        return F.cross_entropy(self.head(x).flatten(0, 1), ids.flatten())


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor]:
    return (torch.randint(32, (4, 12)),)
