"""A small Llama from transformers, with random weights; labels make it return the loss."""

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

BATCH = 4
CONTEXT = 128
VOCABULARY = 1024


def build_model() -> nn.Module:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=704,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=CONTEXT,
        use_cache=False,  # a cache is for generation, not for training
    )
    return LlamaForCausalLM(config)


def example_inputs() -> dict[str, Tensor]:
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    return {"input_ids": ids, "labels": ids.clone()}
