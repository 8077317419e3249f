"""ResNet-18 as in its paper (He et al. 2015), the loss inside: 8 images of 128 × 128, fp32."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH, IMAGE, CLASSES = 8, 128, 1000
WIDTHS = (64, 128, 256, 512)


class Block(nn.Module):
    """Two 3 × 3 convolutions, each with BatchNorm, and the input or its projection added."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.projection = None
        if inputs != outputs:
            conv = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.projection = nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x if self.projection is None else self.projection(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + shortcut, inplace=True)


class ResNet18(nn.Module):
    """Stem, eight blocks, head, loss."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, WIDTHS[0], 7, 2, 3, bias=False)
        self.bn = nn.BatchNorm2d(WIDTHS[0])
        inputs = (WIDTHS[0], *WIDTHS)
        blocks = []
        for i, width in enumerate(WIDTHS):
            blocks += [Block(inputs[i], width, 2 if i else 1), Block(width, width, 1)]
        self.blocks = nn.ModuleList(blocks)
        self.head = nn.Linear(WIDTHS[-1], CLASSES)

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = F.relu(self.bn(self.conv(images)), inplace=True)
        x = F.max_pool2d(x, 3, 2, 1)
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(x.mean((2, 3))), labels)


def build_model() -> nn.Module:
    """Build it with PyTorch's initial weights."""
    return ResNet18()


def example_inputs() -> tuple[Tensor, Tensor]:
    """Return images and labels."""
    return torch.randn(BATCH, 3, IMAGE, IMAGE), torch.randint(CLASSES, (BATCH,))
