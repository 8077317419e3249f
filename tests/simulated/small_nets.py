"""Small models of other kinds than those of tests/gpu, as the body of `forward` and its layers."""

from __future__ import annotations

_NET = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
{layers}

    def forward(self, x: Tensor) -> Tensor:
{body}


def build_model() -> nn.Module:
    return Net(){after}


def example_inputs() -> tuple[Tensor]:
    return ({inputs},)
"""


def _net(layers: str, body: str, inputs: str, after: str = "") -> str:
    def indented(text: str) -> str:
        return "\n".join(f"        {line}" for line in text.strip().splitlines())

    return _NET.format(layers=indented(layers), body=indented(body), inputs=inputs, after=after)


_MLP = "self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))"
NETS = {
    "dropout": _net(
        _MLP,
        """
for layer in self.layers:
    x = x + F.dropout(F.gelu(layer(x)), 0.3, self.training)
return x.square().mean()
""",
        "torch.randn(64, 64)",
    ),
    "autocast float16": _net(
        _MLP,
        """
for layer in self.layers:
    with torch.autocast("cuda", torch.float16):
        x = F.silu(layer(x)).float() + x
return x.logsumexp(-1).mean()
""",
        "torch.randn(64, 64)",
    ),
    "noise": _net(
        _MLP,
        """
for layer in self.layers:
    x = torch.tanh(layer(x)) * (1 + 0.1 * torch.randn_like(x)) + torch.rand(64, device=x.device)
return x.abs().mean()
""",
        "torch.randn(64, 64)",
    ),
    "LayerNorm bfloat16": _net(
        "self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)",
        """
for _ in range(2):
    x = x + self.down(F.gelu(self.up(self.norm(x))))
return x.float().square().mean()
""",
        "torch.randn(32, 64, dtype=torch.bfloat16)",
        ".bfloat16()",
    ),
    "embedding, tied": _net(
        "self.table, self.norm = nn.Embedding(100, 32), nn.LayerNorm(32)",
        """
y = self.table(x)
for _ in range(3):
    y = self.norm(y + torch.cumsum(torch.sigmoid(y), 1))
return F.cross_entropy((y @ self.table.weight.t()).flatten(0, 1), x.flatten())
""",
        "torch.randint(100, (8, 16))",
    ),
    "pools": _net(
        "self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(4))",
        """
for conv in self.convs:
    x = F.interpolate(F.max_pool2d(F.relu(conv(x)), 2), scale_factor=2.0) + x
return F.group_norm(x, 2).square().mean()
""",
        "torch.randn(4, 4, 16, 16)",
    ),
    "in place": _net(
        _MLP + "\nself.register_buffer('seen', torch.zeros(64))",
        """
for layer in self.layers:
    x = F.relu_(layer(x)) + x
    x[:, :2] = 0
    self.seen.add_(x.detach().mean(0))
return x.mean()
""",
        "torch.randn(64, 64)",
    ),
    "attention in parts": _net(
        "self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)",
        """
mask = torch.ones(16, 16, dtype=torch.bool, device=x.device).tril()
for _ in range(3):
    q, k, v = self.qkv(x).chunk(3, -1)
    scores = torch.einsum("bik,bjk->bij", q, k).masked_fill(~mask, -torch.inf)
    x = x + self.out(scores.softmax(-1) @ v)
return x.square().mean()
""",
        "torch.randn(4, 16, 32)",
    ),
    "indices": _net(
        _MLP,
        """
for layer in self.layers:
    y = layer(x)
    best = y.topk(8, -1).indices
    x = x.scatter_add(1, best, y.gather(1, best).exp().clamp(max=2)).roll(1, 1)
return x.mean()
""",
        "torch.randn(32, 64)",
    ),
    "batch norm 1d": _net(
        "self.norms = nn.ModuleList(nn.BatchNorm1d(64) for _ in range(3))\n" + _MLP,
        """
for layer, norm in zip(self.layers, self.norms):
    x = F.leaky_relu(norm(layer(x))) + x
return x.square().mean()
""",
        "torch.randn(64, 64)",
    ),
    "transformer layer": _net(
        "self.layer = nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)",
        "return self.layer(self.layer(x)).square().mean()",
        "torch.randn(4, 16, 32)",
    ),
    "a table made in the first step": _net(
        _MLP + "\nself.register_buffer('table', None)",
        """
if self.table is None:
    self.table = torch.arange(64.0, device=x.device)
for layer in self.layers:
    x = F.dropout(F.relu(layer(x) - self.table)) + x
return x.square().mean()
""",
        "torch.randn(64, 64)",
    ),
}
