"""An encoder-decoder transformer with dropout; the loss is inside `forward`."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ENCODERS = 3
DECODERS = 3
WIDTH = 128
HEADS = 4
VOCABULARY = 512
DROPOUT = 0.1
BATCH = 8
SOURCE = 96
TARGET = 64


class Attention(nn.Module):
    """Attention of `x` over `memory`; causal where positions must not see the future."""

    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key_value = nn.Linear(WIDTH, 2 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def heads(self, x: Tensor) -> Tensor:
        """Split `[B, T, C]` into heads, `[B, HEADS, T, C / HEADS]`."""
        return x.unflatten(-1, (HEADS, WIDTH // HEADS)).transpose(1, 2)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        q = self.heads(self.query(x))
        k, v = (self.heads(part) for part in self.key_value(memory).chunk(2, dim=-1))
        scores = q @ k.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        if self.causal:
            future = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
            scores = scores.masked_fill(future, float("-inf"))
        probs = F.dropout(F.softmax(scores, dim=-1), DROPOUT, self.training)
        return self.out((probs @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Sequential):
    """Four times as wide inside."""

    def __init__(self) -> None:
        super().__init__(
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.ReLU(),
            nn.Dropout(DROPOUT),
            nn.Linear(4 * WIDTH, WIDTH),
        )


class Encoder(nn.Module):
    """One layer over the source."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.attention = Attention(causal=False)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.feed = FeedForward()
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm_1(x)
        x = x + self.drop(self.attention(y, y))
        return x + self.drop(self.feed(self.norm_2(x)))


class Decoder(nn.Module):
    """One layer over the target, which also looks at the encoded source."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(WIDTH)
        self.attention = Attention(causal=True)
        self.norm_2 = nn.LayerNorm(WIDTH)
        self.cross = Attention(causal=False)
        self.norm_3 = nn.LayerNorm(WIDTH)
        self.feed = FeedForward()
        self.drop = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, memory: Tensor) -> Tensor:
        y = self.norm_1(x)
        x = x + self.drop(self.attention(y, y))
        x = x + self.drop(self.cross(self.norm_2(x), memory))
        return x + self.drop(self.feed(self.norm_3(x)))


class Transformer(nn.Module):
    """Translate: encode the source, decode the target, compare with the target one ahead."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Embedding(max(SOURCE, TARGET), WIDTH)
        self.encoders = nn.ModuleList(Encoder() for _ in range(ENCODERS))
        self.norm_source = nn.LayerNorm(WIDTH)
        self.decoders = nn.ModuleList(Decoder() for _ in range(DECODERS))
        self.norm_target = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed tokens `[B, T]` and their positions as `[B, T, C]`."""
        places = torch.arange(ids.shape[1], device=ids.device)
        return F.dropout(self.tokens(ids) + self.positions(places), DROPOUT, self.training)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the loss of predicting `target[:, 1:]` from `source` and `target[:, :-1]`."""
        memory = self.embed(source)
        for encoder in self.encoders:
            memory = encoder(memory)
        memory = self.norm_source(memory)
        x = self.embed(target[:, :-1])
        for decoder in self.decoders:
            x = decoder(x, memory)
        logits = self.head(self.norm_target(x))
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten())


def build_model() -> nn.Module:
    return Transformer()


def example_inputs() -> dict[str, Tensor]:
    return {
        "source": torch.randint(VOCABULARY, (BATCH, SOURCE)),
        "target": torch.randint(VOCABULARY, (BATCH, TARGET + 1)),
    }
