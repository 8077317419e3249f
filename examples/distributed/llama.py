"""A small Llama of transformers, whole or as the stages of a pipeline."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

CONTEXT = 64
VOCABULARY = 256
BATCH = 4
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=64,
    intermediate_size=176,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=CONTEXT,
    use_cache=False,
)


class Stage(nn.Module):
    """Some layers of a Llama, behind its embedding and before its head where these are here."""

    def __init__(self, stage: int, stages: int) -> None:
        super().__init__()
        llama = LlamaForCausalLM(CONFIG)
        each = CONFIG.num_hidden_layers // stages
        self.embed = llama.model.embed_tokens if stage == 0 else None
        self.rotary = llama.model.rotary_emb
        self.layers = llama.model.layers[stage * each : (stage + 1) * each]
        self.norm = llama.model.norm if stage == stages - 1 else None
        self.head = llama.lm_head if stage == stages - 1 else None

    def forward(self, x: Tensor, targets: Tensor | None = None) -> Tensor:
        if self.embed is not None:
            x = self.embed(x)
        rotations = self.rotary(x, torch.arange(x.shape[1], device=x.device)[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=rotations)
        if self.norm is None or self.head is None or targets is None:
            return x
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def build_model() -> nn.Module:
    return LlamaForCausalLM(CONFIG)


def layers(model: nn.Module) -> list[nn.Module]:
    """Return what FSDP2 shards by itself."""
    return list(model.model.layers)


def example_inputs() -> dict[str, Tensor]:
    """Make what Trainer calls the model with; the scripts call it so, too."""
    return _inputs(torch.randint(VOCABULARY, (BATCH, CONTEXT)))


def loss_of(model: nn.Module, ids: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy, which the model computes: it takes the targets from ids."""
    loss: Tensor = model(**_inputs(ids)).loss
    return loss


def build_stage(stage: int, stages: int) -> nn.Module:
    return Stage(stage, stages)


def stage_inputs(stage: int, stages: int) -> tuple[tuple[Tensor], dict[str, Tensor]]:
    """Make a micro-batch: tokens, or the stream between two stages; the last one has targets."""
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    stream = torch.randn(BATCH, CONTEXT, CONFIG.hidden_size, requires_grad=True)
    on_last = stage % 2 == (stages - 1) % 2
    return (tokens if stage == 0 else stream,), {"targets": tokens} if on_last else {}


def _inputs(ids: Tensor) -> dict[str, Tensor]:
    count = torch.tensor(float(ids[:, 1:].numel()), device=ids.device)
    return {"input_ids": ids, "labels": ids.clone(), "num_items_in_batch": count}
