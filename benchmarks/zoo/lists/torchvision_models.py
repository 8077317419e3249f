"""Every architecture family of torchvision: classification, segmentation, video."""

from __future__ import annotations

from subject import Subject, images

_MODELS = "from torchvision import models"
_LABELS = "num_classes=10"


def _of(kind: str, name: str, model: str, inputs: str, imports: str = _MODELS) -> Subject:
    return Subject("torchvision", name, kind, imports, model, inputs)


def _named(kind: str, name: str, size: int, more: str = "") -> Subject:
    arguments = f"{_LABELS}, {more}" if more else _LABELS
    return _of(kind, name, f"models.{name}(weights=None, {arguments})", images(size))


def _class(kind: str, name: str, module: str, model: str, size: int) -> Subject:
    called = model.replace("(", " ").replace(",", " ").split()
    names = {word for word in called if word[0].isupper()}
    imports = f"from torchvision.models.{module} import {', '.join(sorted(names))}"
    return _of(kind, name, model, images(size), imports)


def _segmentation(name: str, size: int) -> Subject:
    call = f"models.segmentation.{name}(weights=None, weights_backbone=None, num_classes=5)"
    return _of("segmentation", name, call, images(size, batch=2))


_VIDEO = "(torch.randn(2, 3, {frames}, {size}, {size}),)"

TORCHVISION: tuple[Subject, ...] = (
    _class(
        "residual",
        "resnet",
        "resnet",
        f"ResNet(Bottleneck, [1, 1, 1, 1], {_LABELS})",
        128,
    ),
    _class(
        "dense connections",
        "densenet",
        "densenet",
        f"DenseNet(8, (4, 4, 4, 4), 16, {_LABELS})",
        96,
    ),
    _of(
        "vision transformer",
        "vit",
        f"models.VisionTransformer(32, 8, 2, 2, 32, 64, dropout=0.1, {_LABELS})",
        images(32),
    ),
    _of(
        "vision transformer",
        "swin",
        f"models.SwinTransformer([4, 4], 24, [2, 2], [2, 2], [4, 4], {_LABELS})",
        images(64),
    ),
    _segmentation("lraspp_mobilenet_v3_large", 64),
    _named(
        "mobile", "mobilenet_v2", 96, "inverted_residual_setting=[[1, 16, 1, 1], [6, 24, 2, 2]]"
    ),
    _named("mobile", "mobilenet_v3_small", 128),
    _named("mobile", "mnasnet0_5", 96),
    _named("mobile", "shufflenet_v2_x0_5", 96),
    _of(
        "mobile",
        "efficientnet",
        "EfficientNet([MBConvConfig(4, 3, 2, 16, 24, 2), MBConvConfig(4, 5, 2, 24, 32, 1)], "
        f"0.2, {_LABELS})",
        images(96),
        "from torchvision.models.efficientnet import EfficientNet, MBConvConfig",
    ),
    _named("mobile", "squeezenet1_1", 192),
    _of(
        "residual",
        "resnext",
        f"models.ResNet(Bottleneck, [1, 1, 1, 1], groups=8, width_per_group=4, {_LABELS})",
        images(128),
        f"{_MODELS}\nfrom torchvision.models.resnet import Bottleneck",
    ),
    _of(
        "mobile",
        "efficientnet_v2",
        f"EfficientNet([FusedMBConvConfig(2, 3, 1, 16, 16, 2), "
        f"FusedMBConvConfig(4, 3, 2, 16, 24, 2)], 0.2, {_LABELS})",
        images(96),
        "from torchvision.models.efficientnet import EfficientNet, FusedMBConvConfig",
    ),
    _of(
        "residual",
        "regnet_x",
        f"RegNet(BlockParams.from_init_params(10, 16, 20.0, 2.2, 8), {_LABELS})",
        images(96),
        "from torchvision.models.regnet import BlockParams, RegNet",
    ),
    _of(
        "residual",
        "regnet_y",
        f"RegNet(BlockParams.from_init_params(10, 16, 20.0, 2.2, 8, 0.25), {_LABELS})",
        images(96),
        "from torchvision.models.regnet import BlockParams, RegNet",
    ),
    _of(
        "convolutional",
        "convnext",
        f"models.ConvNeXt([CNBlockConfig(32, 64, 2), CNBlockConfig(64, None, 2)], 0.1, {_LABELS})",
        images(96),
        f"{_MODELS}\nfrom torchvision.models.convnext import CNBlockConfig",
    ),
    _of(
        "vision transformer",
        "swin_v2",
        "SwinTransformer([4, 4], 24, [2, 2], [2, 2], [4, 4], "
        f"block=SwinTransformerBlockV2, downsample_layer=PatchMergingV2, {_LABELS})",
        images(64),
        "from torchvision.models.swin_transformer import (\n"
        "    PatchMergingV2,\n    SwinTransformer,\n    SwinTransformerBlockV2,\n)",
    ),
    _of(
        "vision transformer",
        "maxvit",
        f"models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.1, {_LABELS})",
        images(64),
    ),
    _segmentation("deeplabv3_mobilenet_v3_large", 192),
    _of(
        "video",
        "mvit",
        "MViT((32, 32), 4, [MSBlockConfig(1, 16, 32, [3, 3, 3], [3, 3, 3], [1, 1, 1], [1, 2, 2]), "
        "MSBlockConfig(2, 32, 32, [3, 3, 3], [3, 3, 3], [1, 2, 2], [1, 1, 1])], "
        f"True, True, True, True, {_LABELS})",
        _VIDEO.format(frames=4, size=32),
        "from torchvision.models.video.mvit import MSBlockConfig, MViT",
    ),
    _of(
        "video",
        "swin3d",
        "SwinTransformer3d([2, 4, 4], 24, [1, 1], [2, 2], [2, 4, 4], "
        f"patch_embed=PatchEmbed3d, {_LABELS})",
        _VIDEO.format(frames=4, size=32),
        "from torchvision.models.video.swin_transformer import PatchEmbed3d, SwinTransformer3d",
    ),
    # large ones
    _named("convolutional", "alexnet", 128),
    _named("convolutional", "vgg11", 64),
    _segmentation("fcn_resnet50", 160),
    _segmentation("deeplabv3_resnet50", 160),
    _of(
        "video",
        "r3d_18",
        f"models.video.r3d_18(weights=None, {_LABELS})",
        _VIDEO.format(frames=8, size=96),
    ),
    _of(
        "video",
        "mc3_18",
        f"models.video.mc3_18(weights=None, {_LABELS})",
        _VIDEO.format(frames=4, size=64),
    ),
    _of(
        "video",
        "r2plus1d_18",
        f"models.video.r2plus1d_18(weights=None, {_LABELS})",
        _VIDEO.format(frames=4, size=64),
    ),
    _of(
        "video",
        "s3d",
        f"models.video.s3d(weights=None, {_LABELS})",
        "(torch.randn(1, 3, 16, 224, 224),)",
    ),
    _of(
        "residual",
        "wide_resnet",
        f"models.ResNet(Bottleneck, [1, 1, 1, 1], width_per_group=128, {_LABELS})",
        images(128),
        f"{_MODELS}\nfrom torchvision.models.resnet import Bottleneck",
    ),
    _named("branches", "googlenet", 96, "aux_logits=True, init_weights=False"),
    _named("branches", "inception_v3", 96, "aux_logits=False, init_weights=False"),
)
