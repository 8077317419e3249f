"""Torch's own layers that hold whole networks, and adapters put into one by peft."""

from __future__ import annotations

from subject import Subject

_WITH_LOSS = """

class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, 32)
        self.inner = {inner}
        self.head = nn.Linear({width}, 64)

    def forward(self, ids, labels):
        x = self.embed(ids)
        x = {call}
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), labels.flatten())"""

_IDS = "(torch.randint(0, 64, (4, {n})), torch.randint(0, 64, (4, {n})))"


def _net(kind: str, name: str, inner: str, call: str, length: int = 32, width: int = 32) -> Subject:
    text = _WITH_LOSS.format(inner=inner, call=call, width=width)
    return Subject("torch", name, kind, text, "Net()", _IDS.format(n=length))


_LLAMA = """\
from peft import {config}, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM


def base() -> nn.Module:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=96,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
            num_key_value_heads=1,
        )
    )"""
_CAUSAL = """{
        "input_ids": torch.arange(128).reshape(4, 32) % 96,
        "labels": torch.arange(128).reshape(4, 32) % 89,
        "use_cache": False,
    }"""
_PROJECTIONS = 'target_modules=["q_proj", "v_proj"]'


def _peft(name: str, config: str, arguments: str) -> Subject:
    model = f"get_peft_model(base(), {config}({arguments}))"
    return Subject("torch", name, "peft", _LLAMA.format(config=config), model, _CAUSAL)


_LAYER = "nn.TransformerEncoderLayer(32, 2, 64, batch_first=True)"
_DECODER = "nn.TransformerDecoderLayer(32, 2, 64, batch_first=True)"

TORCH: tuple[Subject, ...] = (
    _net(
        "transformer",
        "Transformer",
        "nn.Transformer(32, 2, 2, 2, 64, batch_first=True)",
        "self.inner(x, x)",
    ),
    _net("recurrent", "LSTM", "nn.LSTM(32, 32, 2, batch_first=True)", "self.inner(x)[0]", 8),
    _net("recurrent", "GRU", "nn.GRU(32, 32, 2, batch_first=True)", "self.inner(x)[0]", 8),
    _peft("peft-LoRA", "LoraConfig", f"r=4, lora_dropout=0.1, {_PROJECTIONS}"),
    _peft("peft-DoRA", "LoraConfig", f"r=4, use_dora=True, {_PROJECTIONS}"),
    _net(
        "transformer",
        "TransformerEncoder",
        f"nn.TransformerEncoder({_LAYER}, 2)",
        "self.inner(x)",
    ),
    _net(
        "transformer",
        "TransformerDecoder",
        f"nn.TransformerDecoder({_DECODER}, 2)",
        "self.inner(x, x)",
    ),
    _net(
        "transformer",
        "MultiheadAttention",
        "nn.MultiheadAttention(32, 2)",
        "self.inner(x, x, x)[0]",
    ),
    _net(
        "recurrent",
        "LSTM-bidirectional",
        "nn.LSTM(32, 32, batch_first=True, bidirectional=True)",
        "self.inner(x)[0]",
        8,
        64,
    ),
    _net("recurrent", "RNN", "nn.RNN(32, 32, 2, batch_first=True)", "self.inner(x)[0]", 16),
    _peft(
        "peft-IA3",
        "IA3Config",
        'target_modules=["k_proj", "down_proj"], feedforward_modules=["down_proj"]',
    ),
)
