"""A U-Net: every level of the way down is concatenated into the way up."""

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTHS = (16, 32, 64, 128)
CLASSES = 4
BATCH = 4
IMAGE = 96


class DoubleConv(nn.Module):
    """Two 3 × 3 convolutions, each with GroupNorm and SiLU."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.norm1 = nn.GroupNorm(8, outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.norm2 = nn.GroupNorm(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm1(self.conv1(x)))
        return F.silu(self.norm2(self.conv2(x)))


class UNet(nn.Module):
    """Down by max pooling, up by transposed convolutions; returns a score per pixel and class."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(itertools.pairwise(WIDTHS))
        self.stem = DoubleConv(3, WIDTHS[0])
        self.down = nn.ModuleList(DoubleConv(fine, coarse) for fine, coarse in pairs)
        self.grow = nn.ModuleList(
            nn.ConvTranspose2d(coarse, fine, 2, stride=2) for fine, coarse in reversed(pairs)
        )
        self.up = nn.ModuleList(DoubleConv(2 * fine, fine) for fine, _ in reversed(pairs))
        self.head = nn.Conv2d(WIDTHS[0], CLASSES, 1)

    def forward(self, images: Tensor) -> Tensor:
        """Return scores, `[B, CLASSES, H, W]`, for images `[B, 3, H, W]`."""
        x = self.stem(images)
        skips: list[Tensor] = []
        for down in self.down:
            skips.append(x)
            x = down(F.max_pool2d(x, 2))
        for grow, up in zip(self.grow, self.up, strict=True):
            x = up(torch.cat((skips.pop(), grow(x)), dim=1))
        return self.head(x)


def build_model() -> nn.Module:
    return UNet()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(BATCH, 3, IMAGE, IMAGE),)
