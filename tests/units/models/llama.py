"""A library's model: its layers are units, by classes that are derived from the library's."""

import torch
from torch import Tensor, nn
from transformers import LlamaConfig, LlamaForCausalLM


def build_model() -> nn.Module:
    config = LlamaConfig(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=64,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def example_inputs() -> dict[str, Tensor]:
    ids = torch.randint(64, (4, 16))
    return {"input_ids": ids, "labels": ids.clone()}
