"""Models that nobody here wrote, small: planned at 60 % of what can be saved, run against eager."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pytest
from emitting import Emitted, assert_bitwise, at_share, emit
from torch import nn

TRANSFORMERS = """\
import torch
from transformers import {config}, {model}


def build_model():
    return {model}({config}({arguments}))


def example_inputs():
    ids = torch.randint(0, 96, (2, 12))
    return {inputs}
"""
CAUSAL = "{'input_ids': ids, 'labels': ids.clone(), 'use_cache': False}"
ATTENTION = "num_hidden_layers=2, num_attention_heads=2"
SIZES = f"vocab_size=96, hidden_size=32, intermediate_size=64, {ATTENTION}"

MODELS = {
    "gpt2": (
        "GPT2Config",
        "GPT2LMHeadModel",
        "vocab_size=96, n_embd=32, n_layer=2, n_head=2",
        CAUSAL,
    ),
    "mistral": ("MistralConfig", "MistralForCausalLM", SIZES + ", num_key_value_heads=1", CAUSAL),
    "bert": (
        "BertConfig",
        "BertForSequenceClassification",
        SIZES,
        "{'input_ids': ids, 'labels': torch.tensor([0, 1])}",
    ),
    "t5": (
        "T5Config",
        "T5ForConditionalGeneration",
        "vocab_size=96, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, "
        "decoder_start_token_id=0",
        CAUSAL,
    ),
    "vit": (
        "ViTConfig",
        "ViTForImageClassification",
        f"hidden_size=32, intermediate_size=64, {ATTENTION}, image_size=16, patch_size=8",
        "{'pixel_values': torch.randn(2, 3, 16, 16), 'labels': torch.tensor([0, 1])}",
    ),
    "mixtral": (
        "MixtralConfig",
        "MixtralForCausalLM",
        SIZES + ", num_key_value_heads=1, num_local_experts=4",
        CAUSAL,
    ),
}


def transformer(folder: Path, name: str) -> Emitted:
    config, model, arguments, inputs = MODELS[name]
    text = TRANSFORMERS.format(config=config, model=model, arguments=arguments, inputs=inputs)
    return emit(folder, text, at_share("rotor", 0.3), name=name)


@pytest.mark.parametrize("name", MODELS)
def test_transformers(tmp_path: Path, name: str) -> None:
    pytest.importorskip("transformers")
    made = transformer(tmp_path, name)
    assert made.traced.strict
    assert_bitwise(made)


def test_a_librarys_class_keeps_its_name(tmp_path: Path) -> None:
    """By it transformers' Trainer finds out whether labels are shifted, say."""
    text = (
        "import torch\nfrom torch import nn\n\n\ndef build_model():\n"
        "    return nn.TransformerEncoderLayer(16, 2, 32)\n\n\n"
        "def example_inputs():\n    return (torch.randn(4, 2, 16),)\n"
    )
    made = emit(tmp_path, text, at_share("rotor", 0.3))
    kind = type(made.planned.model)
    assert kind.__name__ == "TransformerEncoderLayer"
    assert kind is not nn.TransformerEncoderLayer
    assert kind.__qualname__ in vars(sys.modules[kind.__module__])  # by that it is pickled
    assert type(pickle.loads(pickle.dumps(made.planned.model))) is kind


TORCH = """\
import torch
from torch import Tensor, nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = {inner}
        self.head = nn.Linear(16, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        out = {call}
        return nn.functional.cross_entropy(self.head(out).flatten(0, 1), y.flatten())


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 6, 16), torch.randint(4, (2, 6))
"""


def test_torch_transformer(tmp_path: Path) -> None:
    inner = "nn.Transformer(16, 2, 1, 1, 32, batch_first=True)"
    text = TORCH.format(inner=inner, call="self.inner(x, x)")
    assert_bitwise(emit(tmp_path, text, at_share("rotor", 0.3)))


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("directions", [1, 2])
def test_recurrent_networks(tmp_path: Path, kind: str, directions: int) -> None:
    """Torch runs them by kernels or loops of its own; dropout is drawn between the layers."""
    how = f"dropout=0.2, batch_first=True, bidirectional={directions == 2}"
    inner = f"nn.{kind}(16, {16 // directions}, 2, {how})"
    text = TORCH.format(inner=inner, call="self.inner(x)[0]")
    assert_bitwise(emit(tmp_path, text, at_share("rotor", 1.0)))
