"""Llama 3 70B as published (80 layers), in bfloat16: 141 GB of weights that nobody allocates."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM

BATCH = 1
CONTEXT = 4096
VOCABULARY = 128256


def build_model() -> nn.Module:
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=8192,
        intermediate_size=28672,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        max_position_embeddings=8192,
        rope_theta=500000.0,
        use_cache=False,
    )
    return LlamaForCausalLM(config).to(torch.bfloat16)


def example_inputs() -> dict[str, Tensor]:
    ids = torch.randint(VOCABULARY, (BATCH, CONTEXT))
    return {"input_ids": ids, "labels": ids.clone()}
