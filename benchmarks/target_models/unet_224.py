"""Ronneberger et al.'s U-Net without BatchNorm, at 224 × 224, the loss inside."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def double(a: int, b: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(a, b, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.Conv2d(b, b, 3, padding=1),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, channels: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [channels << level for level in range(depth + 1)]
        self.down = nn.ModuleList(
            double(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True)
        )
        ups = list(reversed(widths))[:-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, a // 2, 2, stride=2) for a in ups)
        self.join = nn.ModuleList(double(a, a // 2) for a in ups)
        self.head = nn.Conv2d(channels, classes, 1)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        skips = []
        for down in self.down[:-1]:
            skips.append(down(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.down[-1](x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat((skips.pop(), up(x)), dim=1))
        return F.cross_entropy(self.head(x), labels)


def build_model() -> nn.Module:
    return UNet()


def example_inputs() -> tuple[Tensor, Tensor]:
    return torch.randn(4, 3, 224, 224), torch.zeros(4, 224, 224, dtype=torch.long)
