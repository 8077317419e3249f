"""A small GPT that can be cut into the stages of a pipeline: a stage has some of its layers."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYERS = 4
WIDTH = 64
HEADS = 4
CONTEXT = 64
VOCABULARY = 256
BATCH = 4


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.proj = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        b, t, c = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, HEADS, c // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(mixed.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    """Attention and MLP, each behind its LayerNorm and added to the stream."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(WIDTH)
        self.attn = Attention()
        self.ln_2 = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.ln_1(x))
        return x + self.down(F.gelu(self.up(self.ln_2(x))))


class GPT(nn.Module):
    """Token numbers to logits, or to the loss where targets are given.

    A stage without embedding is handed the stream instead; one without head returns it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.embed: nn.Module | None = nn.Embedding(VOCABULARY, WIDTH)
        self.h = nn.ModuleDict({str(i): Layer() for i in range(LAYERS)})
        self.head: nn.Module | None = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        for layer in self.h.values():
            x = layer(x)
        if self.head is None:
            return x
        logits = self.head(x)
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_model() -> nn.Module:
    return GPT()


def layers(model: nn.Module) -> list[nn.Module]:
    """Return what FSDP2 shards by itself."""
    return list(model.h.values())


def example_inputs() -> tuple[Tensor]:
    return (torch.randint(VOCABULARY, (BATCH, CONTEXT)),)


def loss_of(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy, computed outside of the model."""
    return F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())


def build_stage(stage: int, stages: int) -> nn.Module:
    """Build the model and leave out what other stages have; layers keep their names."""
    model = GPT()
    layers = list(model.h)
    each = len(layers) // stages
    for name in layers[: stage * each] + layers[(stage + 1) * each :]:
        del model.h[name]
    if stage > 0:
        model.embed = None
    if stage < stages - 1:
        model.head = None
    return model


def stage_inputs(stage: int, stages: int) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    """Make a micro-batch: tokens, or the stream between two stages, of which gradients go back.

    The device of the last stage has the targets, too, and hands them to all of its stages.
    """
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    stream = torch.randn(BATCH, CONTEXT, WIDTH, requires_grad=True)
    on_last = stage % 2 == (stages - 1) % 2
    return (tokens if stage == 0 else stream,), {"targets": tokens} if on_last else {}
