"""Models whose steps run what only a GPU has: fused attention, its dropout, cuDNN, autocast."""

from __future__ import annotations

LAYERS, CONVOLUTION_LAYERS = 3, 4
HEAD = """
import torch
import torch.nn.functional as F
from torch import Tensor, nn

"""
ATTENTION = (
    HEAD
    + """
class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).view(batch, length, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        heads = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=PROBABILITY
        )
        x = x + self.out(heads.transpose(1, 2).reshape(batch, length, width))
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(256) for _ in range(LAYERS))
        self.head = nn.Linear(256, 512)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return F.cross_entropy(self.head(x).flatten(0, 1).float(), labels.flatten())


def build_model() -> nn.Module:
    return Net().to(DTYPE)


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(2, 128, 256, dtype=DTYPE), torch.randint(512, (2, 128))
"""
)
CONVOLUTIONS = (
    HEAD
    + """
class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, padding=1)
        convs = (nn.Conv2d(32, 32, 3, padding=1, bias=False) for _ in range(DEPTH))
        self.convs = nn.ModuleList(convs)
        self.norms = nn.ModuleList(nn.BatchNorm2d(32) for _ in range(DEPTH))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(32, 10)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        x = self.first(x)
        for conv, norm in zip(self.convs, self.norms):
            x = x + self.drop(F.relu(norm(conv(x))))
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


def build_model() -> nn.Module:
    return Net()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(16, 3, 32, 32), torch.randint(10, (16,))
"""
)
AUTOCAST = '\n\ndef step_context():\n    return torch.autocast("cuda", torch.bfloat16)\n'


def attention(dtype: str, probability: float) -> str:
    """Return the text of a model with fused attention."""
    text = ATTENTION.replace("DTYPE", f"torch.{dtype}").replace("PROBABILITY", str(probability))
    return text.replace("LAYERS", str(LAYERS))


RMS_NORM = attention("bfloat16", 0.0).replace("nn.LayerNorm", "nn.RMSNorm")
CONVOLUTIONS = CONVOLUTIONS.replace("DEPTH", str(CONVOLUTION_LAYERS))
MODELS = {
    "attention": attention("bfloat16", 0.0),
    "attention, dropout": attention("bfloat16", 0.1),
    "attention, float32": attention("float32", 0.1),
    "attention, autocast": attention("float32", 0.0) + AUTOCAST,
    "attention, RMSNorm": RMS_NORM,
    "convolutions": CONVOLUTIONS,
    "convolutions, autocast": CONVOLUTIONS + AUTOCAST,
}
