"""A small GPT: causal attention by hand, dropout, a tied head, the loss inside `forward`."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 4
WIDTH = 256
HEADS = 4
CONTEXT = 128
VOCABULARY = 1024
DROPOUT = 0.1
BATCH = 8


class Attention(nn.Module):
    """Causal self-attention, written out."""

    mask: Tensor

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.attn_drop = nn.Dropout(DROPOUT)
        self.resid_drop = nn.Dropout(DROPOUT)
        future = torch.ones(CONTEXT, CONTEXT, dtype=torch.bool).triu(1)
        self.register_buffer("mask", future, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(c // self.heads)
        # position i sees positions 0 … i
        scores = scores.masked_fill(self.mask[:t, :t], float("-inf"))
        probs = self.attn_drop(F.softmax(scores, dim=-1))
        mixed = (probs @ v).transpose(1, 2).reshape(b, t, c)
        return self.resid_drop(self.proj(mixed))


class Mlp(nn.Module):
    """Four times as wide inside."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        return self.drop(self.down(F.gelu(self.up(x))))


class Layer(nn.Module):
    """Attention and MLP, each behind its LayerNorm and added to the stream."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(width, heads)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """A decoder-only language model; the head shares its weight with the token embedding."""

    def __init__(self, layers: int = LAYERS, width: int = WIDTH) -> None:
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, width)
        self.wpe = nn.Embedding(CONTEXT, width)
        self.drop = nn.Dropout(DROPOUT)
        self.h = nn.ModuleList(Layer(width, HEADS) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.apply(init)
        self.head.weight = self.wte.weight

    def forward(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the logits, `[B, T, VOCABULARY]`."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.drop(self.wte(ids) + self.wpe(positions))
        for layer in self.h:
            x = layer(x)
        logits = self.head(self.ln_f(x))
        loss = F.cross_entropy(logits.view(-1, VOCABULARY), targets.view(-1))
        return loss, logits


def init(module: nn.Module) -> None:
    """Initialise as GPT-2 does."""
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=0.02)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


def build_model() -> nn.Module:
    return GPT()


def example_inputs() -> tuple[Tensor, Tensor]:
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
