"""A bottleneck ResNet for small images: BatchNorm, in-place ReLU; it returns logits."""

import torch
from torch import Tensor, nn

WIDTHS = (32, 64, 128)
DEPTHS = (3, 3, 3)
EXPANSION = 4
CLASSES = 10
BATCH = 8
IMAGE = 48


def convolution(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    """Return a padded convolution without a bias: BatchNorm follows."""
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


class Bottleneck(nn.Module):
    """1 × 1 down, 3 × 3, 1 × 1 up, and a shortcut around them."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = EXPANSION * width
        self.conv1 = convolution(inputs, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, outputs, 1)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                convolution(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.shortcut(x)
        return self.relu(y)


class ResNet(nn.Module):
    """A stem, stages of bottlenecks, average pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            convolution(3, WIDTHS[0], 3), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU(inplace=True)
        )
        blocks: list[nn.Module] = []
        channels = WIDTHS[0]
        for stage, (width, depth) in enumerate(zip(WIDTHS, DEPTHS, strict=True)):
            for index in range(depth):
                stride = 2 if index == 0 and stage > 0 else 1
                blocks.append(Bottleneck(channels, width, stride))
                channels = EXPANSION * width
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(channels, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits, `[B, CLASSES]`, for images `[B, 3, H, W]`."""
        x = self.blocks(self.stem(images))
        return self.fc(self.pool(x).flatten(1))


def build_model() -> nn.Module:
    return ResNet()


def example_inputs() -> tuple[Tensor]:
    return (torch.randn(BATCH, 3, IMAGE, IMAGE),)
