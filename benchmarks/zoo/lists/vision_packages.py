"""Vision transformers, segmentation of pictures and of volumes: chosen before they were tried."""

from __future__ import annotations

from collections.abc import Iterator

from subject import Subject, images

from lists.package_subject import of, subject

_VOLUMES = "(torch.randn(2, 1, 32, 32, 32),)"
_VIT = "image_size=64, num_classes=10, dim=32, depth=2, heads=2, mlp_dim=64"
_PATCHES = f"patch_size=16, {_VIT}"
_VIT_PYTORCH = {
    "vit.ViT": f"{_PATCHES}, dropout=0.1, emb_dropout=0.1",
    "simple_vit.SimpleViT": _PATCHES,
    "deepvit.DeepViT": f"{_PATCHES}, dropout=0.1",
    "cait.CaiT": f"{_PATCHES}, cls_depth=1, dropout=0.1",
    "t2t.T2TViT": (
        "dim=32, image_size=64, depth=2, heads=2, mlp_dim=64, num_classes=10, "
        "t2t_layers=((7, 4), (3, 2))"
    ),
    "cct.CCT": (
        "img_size=(64, 64), embedding_dim=32, n_conv_layers=2, kernel_size=7, stride=2, padding=3, "
        "pooling_kernel_size=3, pooling_stride=2, pooling_padding=1, num_layers=2, num_heads=2, "
        "mlp_ratio=2.0, num_classes=10, positional_embedding='learnable'"
    ),
    "cvt.CvT": (
        "num_classes=10, s1_emb_dim=16, s1_heads=1, s1_depth=1, s2_emb_dim=24, s2_heads=2, "
        "s2_depth=1, s3_emb_dim=32, s3_heads=2, s3_depth=1"
    ),
    "cross_vit.CrossViT": (
        "image_size=64, num_classes=10, depth=1, sm_dim=16, sm_patch_size=16, sm_enc_depth=1, "
        "sm_enc_heads=2, sm_enc_mlp_dim=32, lg_dim=24, lg_patch_size=32, lg_enc_depth=1, "
        "lg_enc_heads=2, lg_enc_mlp_dim=32, cross_attn_depth=1, cross_attn_heads=2"
    ),
    "pit.PiT": (
        "image_size=56, patch_size=14, dim=32, num_classes=10, depth=(1, 1), heads=2, mlp_dim=64"
    ),
    "levit.LeViT": (
        "image_size=64, num_classes=10, stages=2, dim=(32, 48), depth=1, heads=(2, 3), mlp_mult=2"
    ),
    "vit_with_patch_dropout.ViT": f"{_PATCHES}, patch_dropout=0.25",
    "rvt.RvT": _PATCHES,
    "crossformer.CrossFormer": "num_classes=10, dim=(32, 64, 128, 256), depth=(1, 1, 1, 1)",
    "scalable_vit.ScalableViT": (
        "num_classes=10, dim=16, heads=(1, 2, 2, 4), depth=(1, 1, 1, 1), "
        "ssa_dim_key=(16, 16, 16, 16), reduction_factor=(4, 2, 1, 1), "
        "window_size=(8, 4, None, None)"
    ),
    "twins_svt.TwinsSVT": (
        "num_classes=10, s1_emb_dim=16, s2_emb_dim=24, s3_emb_dim=32, s4_emb_dim=48, s3_depth=1"
    ),
    "nest.NesT": (
        "image_size=64, patch_size=4, dim=16, heads=2, num_hierarchies=2, block_repeats=(1, 1), "
        "num_classes=10"
    ),
    "mobile_vit.MobileViT": (
        "image_size=(64, 64), dims=[16, 24, 32], num_classes=10, depths=(1, 1, 1), "
        "channels=[8, 8, 16, 16, 24, 24, 32, 32, 48, 48, 64]"
    ),
    "xcit.XCiT": f"{_PATCHES}, cls_depth=1, dropout=0.1",
    "parallel_vit.ViT": _PATCHES,
    "max_vit.MaxViT": (
        "num_classes=10, dim=16, dim_head=8, depth=(1, 1), window_size=4, mbconv_expansion_rate=2"
    ),
    "vit_with_patch_merger.ViT": f"{_PATCHES}, patch_merge_layer=1, patch_merge_num_tokens=4",
    "regionvit.RegionViT": (
        "num_classes=10, dim=(16, 24, 32, 48), depth=(1, 1, 1, 1), window_size=7"
    ),
    "sep_vit.SepViT": (
        "num_classes=10, dim=16, dim_head=8, heads=(1, 2), depth=(1, 1), window_size=4"
    ),
    "simple_vit_with_register_tokens.SimpleViT": _PATCHES,
    "simple_vit_with_qk_norm.SimpleViT": _PATCHES,
}


_SIZES = {"cvt": 128, "scalable_vit": 256, "pit": 56} | dict.fromkeys(
    ("twins_svt", "crossformer", "regionvit", "sep_vit"), 224
)


def _vit_pytorch() -> Iterator[Subject]:
    for path, arguments in _VIT_PYTORCH.items():
        module, _, name = path.partition(".")
        imports = f"from vit_pytorch.{module} import {name}"
        inputs = images(_SIZES.get(module, 64), batch=2)
        yield subject("vit-pytorch", path, "vision", imports, f"{name}({arguments})", inputs)


_MODELS_OF_SEGMENTATION = (
    "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer"
).split()


def _segmentation() -> Iterator[Subject]:
    for name in _MODELS_OF_SEGMENTATION:
        imports = f"from segmentation_models_pytorch import {name}"
        model = f"{name}('resnet18', encoder_weights=None, classes=3)"
        inputs = images(256 if name == "PAN" else 64, batch=2)
        yield subject("segmentation-models", name, "segmentation", imports, model, inputs)


_CHANNELS = "spatial_dims=3, in_channels=1, out_channels=2"
_STEPS = "channels=(4, 8, 16), strides=(2, 2)"
_MONAI = {
    "UNet": (f"{_CHANNELS}, {_STEPS}, num_res_units=1", _VOLUMES),
    "AttentionUnet": (f"{_CHANNELS}, {_STEPS}", _VOLUMES),
    "BasicUNet": (f"{_CHANNELS}, features=(4, 4, 8, 16, 32, 4)", _VOLUMES),
    "DynUNet": (
        f"{_CHANNELS}, kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2], "
        "filters=[4, 8, 16]",
        _VOLUMES,
    ),
    "SegResNet": ("spatial_dims=3, init_filters=8, in_channels=1, out_channels=2", _VOLUMES),
    "SwinUNETR": (
        "in_channels=1, out_channels=2, feature_size=12, depths=(1, 1, 1, 1)",
        "(torch.randn(1, 1, 64, 64, 64),)",
    ),
    "UNETR": (
        "in_channels=1, out_channels=2, img_size=(32, 32, 32), feature_size=4, hidden_size=24, "
        "mlp_dim=48, num_heads=2",
        _VOLUMES,
    ),
    "VNet": ("spatial_dims=3, in_channels=1, out_channels=2", _VOLUMES),
    "HighResNet": ("spatial_dims=3, in_channels=1, out_channels=2", _VOLUMES),
    "DenseNet121": (
        "spatial_dims=3, in_channels=1, out_channels=2, init_features=8, growth_rate=4",
        _VOLUMES,
    ),
    "VarAutoEncoder": (
        "spatial_dims=3, in_shape=(1, 32, 32, 32), out_channels=1, latent_size=4, "
        "channels=(4, 8, 16), strides=(1, 2, 2)",
        _VOLUMES,
    ),
    "MILModel": (
        "num_classes=2, mil_mode='att', pretrained=False",
        "(torch.randn(1, 2, 3, 64, 64),)",
    ),
}

VISION: tuple[Subject, ...] = (
    *_vit_pytorch(),
    *_segmentation(),
    *of("monai", "segmentation", "monai.networks.nets", _MONAI),
)
