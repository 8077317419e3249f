"""GPT-2 as nanoGPT writes it: attention by hand, dropout everywhere, a tied head."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a GPT and of its step; `output` is "hidden" (no head), "logits" or "loss"."""

    layers: int = 24
    width: int = 1024
    heads: int = 16
    context: int = 1024
    batch: int = 8
    vocabulary: int = 50257
    dropout: float = 0.1
    output: str = "hidden"


class Attention(nn.Module):
    """Causal self-attention, written out."""

    future: Tensor

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.c_attn = nn.Linear(shape.width, 3 * shape.width)
        self.c_proj = nn.Linear(shape.width, shape.width)
        self.attn_dropout = nn.Dropout(shape.dropout)
        self.resid_dropout = nn.Dropout(shape.dropout)
        future = torch.ones(shape.context, shape.context, dtype=torch.bool).triu(1)
        self.register_buffer("future", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = (
            part.view(b, t, self.heads, c // self.heads).transpose(1, 2)
            for part in self.c_attn(x).split(c, dim=2)
        )
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(c // self.heads))
        att = att.masked_fill(self.future[:t, :t], float("-inf"))
        att = self.attn_dropout(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2).reshape(b, t, c)
        return self.resid_dropout(self.c_proj(y))


class Mlp(nn.Module):
    """Four times as wide inside."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.c_fc = nn.Linear(shape.width, 4 * shape.width)
        self.c_proj = nn.Linear(4 * shape.width, shape.width)
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Layer(nn.Module):
    """Attention and MLP, each behind its LayerNorm and added to the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(shape.width)
        self.attn = Attention(shape)
        self.ln_2 = nn.LayerNorm(shape.width)
        self.mlp = Mlp(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt2(nn.Module):
    """A decoder-only language model; the head shares its weight with the token embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.output = shape.output
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.wpe = nn.Embedding(shape.context, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.h = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.ln_f = nn.LayerNorm(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.lm_head.weight = self.wte.weight

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        for layer in self.h:
            x = layer(x)
        x = self.ln_f(x)
        if self.output == "hidden":
            return x
        logits = self.lm_head(x)
        if self.output == "logits":
            return logits
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), targets.view(-1))


def step_of(shape: Shape) -> tuple[Callable[[], nn.Module], Callable[[], tuple[Tensor, Tensor]]]:
    """Return what builds the model and its inputs."""

    def inputs() -> tuple[Tensor, Tensor]:
        ids = torch.zeros(shape.batch, shape.context, dtype=torch.long)
        return ids, ids.clone()

    return lambda: Gpt2(shape), inputs
