"""The models of OGC's table at its batch sizes, a U-Net and an encoder-decoder transformer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent / "zoo"))

from operators import import_torchvision

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: what builds the model, its inputs, and what is known and asked.

    `cut` and `overhead` are OGC's published ones in %, `asked` the overhead at its cut in %.
    """

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Inputs]
    cut: float | None = None
    overhead: float | None = None
    asked: float | None = None


class Classified(nn.Module):
    """A classifier with its loss: the step is `loss.backward()`."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        logits = self.model(images)
        return F.cross_entropy(logits.flatten(2) if logits.ndim > 2 else logits, labels)


class UNet(nn.Module):
    """Ronneberger et al.'s net, padded, with BatchNorm: 64 to 1024 channels."""

    def __init__(self, channels: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        pairs = zip([3, *widths[:-1]], widths, strict=True)
        self.down = nn.ModuleList(_double(a, b) for a, b in pairs)
        ups = list(reversed(widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, a // 2, 2, stride=2) for a in ups[:-1])
        self.join = nn.ModuleList(_double(a, a // 2) for a in ups[:-1])
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for down in self.down[:-1]:
            skips.append(down(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((skips.pop(), up(x)), dim=1))
        return self.head(x)


def _double(a: int, b: int) -> nn.Sequential:
    layers = [
        layer
        for width in (a, b)
        for layer in (nn.Conv2d(width, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True))
    ]
    return nn.Sequential(*layers)


class Translator(nn.Module):
    """Vaswani et al.'s base model as torch.nn has it, its head tied to one embedding."""

    def __init__(self, vocabulary: int = 8192, width: int = 512) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.transformer = nn.Transformer(width, 8, 6, 6, 2048, 0.1, batch_first=True)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        length = target.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=target.device).triu(1)
        source, target_in = self.embedding(source), self.embedding(target)
        x = self.transformer(source, target_in, tgt_mask=future, tgt_is_causal=True)
        logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def images(batch: int, size: int, dense: bool = False) -> Callable[[], Inputs]:
    """Return what makes a batch of images and their labels, one per pixel where `dense`."""
    shape = (batch, size * size) if dense else (batch,)
    return lambda: (torch.zeros(batch, 3, size, size), torch.zeros(shape, dtype=torch.long))


def sentences(batch: int, length: int) -> Callable[[], Inputs]:
    """Return what makes pairs of sentences."""
    return lambda: tuple(torch.zeros(batch, length, dtype=torch.long) for _ in range(2))


def _torchvision(name: str, **more: bool) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        import_torchvision()
        from torchvision import models

        return Classified(getattr(models, name)(weights=None, **more))

    return build


def _nasnet() -> nn.Module:
    import timm

    return Classified(timm.create_model("nasnetalarge"))


_INCEPTION = _torchvision("inception_v3", aux_logits=False, init_weights=False)
ROWS = (
    Row("AlexNet, 1024", _torchvision("alexnet"), images(1024, 224), 34, 34),
    Row("VGG-16, 64", _torchvision("vgg16"), images(64, 224), 31, 32, 1.5),
    Row("ResNet-18, 256", _torchvision("resnet18"), images(256, 224), 35, 30, 4.0),
    Row("ResNet-50, 64", _torchvision("resnet50"), images(64, 224), 63, 31, 15.0),
    Row("ResNet-101, 32", _torchvision("resnet101"), images(32, 224), 74, 35, 22.0),
    Row("ResNet-152, 16", _torchvision("resnet152"), images(16, 224), 81, 37, 28.0),
    Row("DenseNet-121, 32", _torchvision("densenet121"), images(32, 224), 78, 34),
    Row("DenseNet-201, 16", _torchvision("densenet201"), images(16, 224), 85, 53),
    Row("Inception v3, 32 at 300²", _INCEPTION, images(32, 300), 71, 29),
    Row("NASNet-A large, 4 at 331²", _nasnet, images(4, 331)),
    Row("U-Net, 8 at 256²", lambda: Classified(UNet()), images(8, 256, dense=True)),
    Row("transformer, 32 × 256", Translator, sentences(32, 256)),
)
