"""A small Llama of transformers, with what the scripts ask of a module."""

import torch
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


def _inputs(ids: Tensor) -> dict[str, Tensor]:
    count = torch.tensor(float(ids[:, 1:].numel()), device=ids.device)
    return {"input_ids": ids, "labels": ids.clone(), "num_items_in_batch": count}
