"""Families of timm, the smallest of each, narrow or shallow where it can be asked for."""

from __future__ import annotations

from subject import Subject, images


def _of(kind: str, name: str, size: int, more: str = "", sized: bool = False) -> Subject:
    given = f", {more}" if more else ""
    given += f", img_size={size}" if sized else ""
    model = f'timm.create_model("{name}", num_classes=10{given})'
    return Subject("timm", name, kind, "import timm", model, images(size))


def _class(kind: str, name: str, module: str, model: str, size: int) -> Subject:
    """Return a family whose named models leave no choice of depth: its class itself."""
    imports = f"from timm.models import {module}"
    return Subject("timm", name, kind, imports, f"{module}.{model}", images(size))


_TRANSFORMER, _CONVOLUTIONAL, _MOBILE = "vision transformer", "convolutional", "mobile"
_HYBRID, _MIXER = "hybrid", "mixer"

TIMM: tuple[Subject, ...] = (
    _of(_TRANSFORMER, "test_vit", 160, sized=True),
    _of(_TRANSFORMER, "deit_tiny_distilled_patch16_224", 64, "depth=4, patch_size=4", sized=True),
    _of(_CONVOLUTIONAL, "test_resnet", 96),
    _of(_CONVOLUTIONAL, "test_convnext", 96),
    _of(_MOBILE, "test_efficientnet", 96),
    _of(_MOBILE, "mobilenetv3_small_050", 128),
    _of(_HYBRID, "test_maxvit", 64, sized=True),
    _of(_HYBRID, "mobilevit_xxs", 128),
    _class(
        _MIXER,
        "mlp_mixer",
        "mlp_mixer",
        "MlpMixer(10, 64, patch_size=8, num_blocks=6, embed_dim=64)",
        64,
    ),
    _class(
        _MIXER,
        "poolformer",
        "metaformer",
        "MetaFormer(num_classes=10, depths=(3, 3), dims=(16, 32))",
        64,
    ),
    _of(_CONVOLUTIONAL, "test_nfnet", 192),
    _of(_CONVOLUTIONAL, "test_byobnet", 192),
    _of(
        _TRANSFORMER,
        "beit_base_patch16_224",
        64,
        "depth=4, patch_size=4, embed_dim=96, num_heads=4",
        sized=True,
    ),
    _of(
        _TRANSFORMER,
        "swin_tiny_patch4_window7_224",
        64,
        "depths=(2, 2), embed_dim=32, num_heads=(2, 2), window_size=4",
        sized=True,
    ),
    _of(
        _TRANSFORMER,
        "swinv2_tiny_window8_256",
        64,
        "depths=(2, 2), embed_dim=32, num_heads=(2, 2), window_size=4",
        sized=True,
    ),
    _of(_TRANSFORMER, "eva02_tiny_patch14_224", 56, "depth=4, patch_size=4", sized=True),
    _of(_TRANSFORMER, "cait_xxs24_224", 64, "depth=4, patch_size=4", sized=True),
    _of(_TRANSFORMER, "xcit_nano_12_p16_224", 64, "depth=2", sized=True),
    _of(_TRANSFORMER, "test_vit_relpos", 64, sized=True),
    _of(_TRANSFORMER, "convit_tiny", 64, "depth=3, local_up_to_layer=2", sized=True),
    _of(_TRANSFORMER, "pvt_v2_b0", 64, "depths=(1, 1, 1, 1)"),
    _of(_TRANSFORMER, "twins_svt_small", 64, "depths=(1, 1, 1, 1)", sized=True),
    _of(_TRANSFORMER, "davit_tiny", 64, "depths=(1, 1), embed_dims=(32, 64), num_heads=(2, 2)"),
    _of(_TRANSFORMER, "hiera_tiny_224", 64, "stages=(1, 1, 1, 1)", sized=True),
    _of(_TRANSFORMER, "mvitv2_tiny", 64, sized=True),
    _class(
        _TRANSFORMER,
        "volo",
        "volo",
        "VOLO([3, 3], 64, num_classes=10, embed_dims=[32, 64], num_heads=[2, 2], "
        "downsamples=(True, False), outlook_attention=(True, False), mlp_ratio=(2.0, 2.0), "
        "use_mix_token=False, use_aux_head=False)",
        64,
    ),
    _of(_TRANSFORMER, "pit_ti_224", 96, "depth=(2, 2, 2)", sized=True),
    _of(_CONVOLUTIONAL, "densenet121", 96, "block_config=(4, 4, 4, 4)"),
    _of(_CONVOLUTIONAL, "dla46_c", 96),
    _of(_CONVOLUTIONAL, "hrnet_w18_small", 64),
    _of(_CONVOLUTIONAL, "regnetx_002", 96),
    _of(_CONVOLUTIONAL, "resnetv2_50", 96, "layers=(1, 1, 1, 1)"),
    _of(_CONVOLUTIONAL, "res2net50_14w_8s", 96, "layers=(1, 1, 1, 1)"),
    _of(_CONVOLUTIONAL, "resnest14d", 96),
    _of(_CONVOLUTIONAL, "skresnet18", 96, "layers=(1, 1, 1, 1)"),
    _of(_CONVOLUTIONAL, "legacy_seresnet18", 96, "layers=(1, 1, 1, 1)"),
    _of(_CONVOLUTIONAL, "ese_vovnet19b_slim", 96),
    _of(_CONVOLUTIONAL, "cspresnet50", 96),
    _of(_CONVOLUTIONAL, "selecsls42b", 192),
    _of(_CONVOLUTIONAL, "inception_next_atto", 96, "depths=(1, 1, 1, 1)"),
    _class(
        _HYBRID,
        "focalnet",
        "focalnet",
        "FocalNet(num_classes=10, embed_dim=24, depths=(1, 1), focal_levels=(2, 2), "
        "focal_windows=(3, 3))",
        64,
    ),
    _class(_CONVOLUTIONAL, "convmixer", "convmixer", "ConvMixer(32, 3, num_classes=10)", 64),
    _of(_MOBILE, "ghostnet_050", 128),
    _of(_MOBILE, "repvit_m0_9", 64),
    _of(_MOBILE, "starnet_s050", 96),
    _of(_MOBILE, "rexnet_100", 96),
    _of(_MOBILE, "hgnetv2_b0", 96),
    _of(_MOBILE, "fasternet_t0", 96, "depths=(1, 1, 2, 1)"),
    _of(_HYBRID, "levit_128s", 64, sized=True),
    _of(_HYBRID, "edgenext_xx_small", 96, "depths=(1, 1, 2, 1)"),
    _of(_HYBRID, "efficientformer_l1", 224, "depths=(1, 1, 1, 2)"),
    _of(_HYBRID, "fastvit_t8", 64, "layers=(1, 1, 1, 1)"),
    _of(_HYBRID, "efficientvit_b0", 96),
    _of(_HYBRID, "coat_lite_tiny", 64, sized=True),
    _of(_HYBRID, "test_mambaout", 96),
    _of(_HYBRID, "botnet26t_256", 128, sized=True),
    _class(
        _MIXER,
        "gmlp",
        "mlp_mixer",
        "MlpMixer(10, 64, patch_size=8, num_blocks=6, embed_dim=64, mlp_ratio=4, "
        "block_layer=mlp_mixer.SpatialGatingBlock, mlp_layer=mlp_mixer.GatedMlp)",
        64,
    ),
    _class(
        _MIXER,
        "resmlp",
        "mlp_mixer",
        "MlpMixer(10, 64, patch_size=8, num_blocks=6, embed_dim=64, mlp_ratio=4, "
        "block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine)",
        64,
    ),
    _of("recurrent", "sequencer2d_s", 64, "layers=(1, 1, 1, 1)"),
)
