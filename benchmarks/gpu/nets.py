"""Models that fill a GPU, as text: a GPT-2 medium, and a Llama of about a billion parameters."""

from __future__ import annotations

from collections.abc import Mapping

_HEAD = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn


"""
_TAIL = """

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = NORM(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids[:, :-1])
        for layer in self.layers:
            x = layer(x)
        logits = F.linear(self.norm(x), self.table.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), ids[:, 1:].flatten())


def build_model() -> nn.Module:
    return Net().bfloat16()


def example_inputs() -> tuple[Tensor]:
    return (torch.randint(VOCABULARY, (BATCH, LENGTH + 1)),)
"""
_GPT = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        n, t, w = x.shape
        parts = self.qkv(self.before(x)).view(n, t, 3, HEADS, w // HEADS).permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(*parts.unbind(0), is_causal=True)
        x = x + self.drop(self.out(heads.transpose(1, 2).reshape(n, t, w)))
        return x + self.drop(self.down(F.gelu(self.up(self.after(x)))))
"""
_LLAMA = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.q, self.out = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (nn.Linear(WIDTH, WIDTH // 4, bias=False) for _ in range(2))
        self.gate, self.up = (nn.Linear(WIDTH, 4 * WIDTH, bias=False) for _ in range(2))
        self.down = nn.Linear(4 * WIDTH, WIDTH, bias=False)

    def turned(self, x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        place = torch.arange(x.shape[-2], device=x.device)[:, None]
        angle = place / 10000 ** (torch.arange(half, device=x.device) / half)
        cos, sin = (f(angle).to(x.dtype) for f in (torch.cos, torch.sin))
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def forward(self, x: Tensor) -> Tensor:
        n, t, w = x.shape
        y = self.before(x)
        parts = (part(y).view(n, t, -1, w // HEADS) for part in (self.q, self.k, self.v))
        q, k, v = (part.transpose(1, 2) for part in parts)
        k, v = (part.repeat_interleave(4, 1) for part in (self.turned(k), v))
        heads = F.scaled_dot_product_attention(self.turned(q), k, v, is_causal=True)
        x = x + self.out(heads.transpose(1, 2).reshape(n, t, w))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))
"""
_LAYERS = {"gpt2_medium": (_GPT, "nn.LayerNorm"), "llama_1b": (_LLAMA, "nn.RMSNorm")}
SIZES: dict[str, Mapping[str, int]] = {
    "gpt2_medium": dict(LAYERS=24, WIDTH=1024, HEADS=16, VOCABULARY=50304, BATCH=16, LENGTH=1024),
    "llama_1b": dict(LAYERS=16, WIDTH=2048, HEADS=32, VOCABULARY=128256, BATCH=1, LENGTH=4096),
}
SMALL: Mapping[str, int] = dict(LAYERS=2, WIDTH=64, HEADS=4, VOCABULARY=64, BATCH=2, LENGTH=32)


def text(name: str, sizes: Mapping[str, int]) -> str:
    """Return the file of a model of certain sizes."""
    layer, norm = _LAYERS[name]
    numbers = "".join(f"{key} = {value}\n" for key, value in sizes.items())
    return _HEAD + numbers + "\n\n" + layer + _TAIL.replace("NORM", norm)
