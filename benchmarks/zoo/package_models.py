"""Models of packages for vision, diffusion, sequences, graphs and tables, small, with their losses.

Each was chosen from its package's README before it was tried.
"""

from __future__ import annotations

from collections.abc import Iterator

from subject import Subject, images

_TOKENS = "(torch.randint(0, 96, (4, 64)),)"
_WIDE = "(torch.randn(4, 64, 32),)"
_VOLUMES = "(torch.randn(2, 1, 32, 32, 32),)"
_LATENTS = '{"sample": torch.randn(4, 4, 16, 16), "timestep": torch.tensor([1, 5, 9, 20])}'


def _subject(package: str, name: str, kind: str, imports: str, model: str, inputs: str) -> Subject:
    return Subject("packages", f"{package}.{name}", kind, imports, model, inputs)


def _of(package: str, kind: str, module: str, rows: dict[str, tuple[str, str]]) -> list[Subject]:
    """Return a package's models: the arguments of each, and its inputs."""
    return [
        _subject(
            package,
            name,
            kind,
            f"from {module} import {name.partition('.')[0]}",
            f"{name}({arguments})",
            inputs,
        )
        for name, (arguments, inputs) in rows.items()
    ]


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
        yield _subject("vit-pytorch", path, "vision", imports, f"{name}({arguments})", inputs)


_UNET2D = (
    "sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, "
    "block_out_channels=(16, 32), norm_num_groups=8"
)
_DIFFUSERS = {
    "UNet2DModel": (
        f"{_UNET2D}, down_block_types=('DownBlock2D', 'AttnDownBlock2D'), "
        "up_block_types=('AttnUpBlock2D', 'UpBlock2D')",
        _LATENTS,
    ),
    "UNet2DConditionModel": (
        f"{_UNET2D}, cross_attention_dim=16, attention_head_dim=8, "
        "down_block_types=('CrossAttnDownBlock2D', 'DownBlock2D'), "
        "up_block_types=('UpBlock2D', 'CrossAttnUpBlock2D')",
        f'{{**{_LATENTS}, "encoder_hidden_states": torch.randn(4, 8, 16)}}',
    ),
    "AutoencoderKL": (
        "block_out_channels=(16, 32), down_block_types=('DownEncoderBlock2D',) * 2, "
        "up_block_types=('UpDecoderBlock2D',) * 2, norm_num_groups=8",
        images(32),
    ),
    "AutoencoderTiny": (
        "encoder_block_out_channels=(16, 16), decoder_block_out_channels=(16, 16), "
        "num_encoder_blocks=(1, 1), num_decoder_blocks=(1, 1)",
        images(32),
    ),
    "DiTTransformer2DModel": (
        "num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, "
        "sample_size=16, num_embeds_ada_norm=32, norm_num_groups=8",
        '{"hidden_states": torch.randn(4, 4, 16, 16), "timestep": torch.tensor([1, 5, 9, 20]), '
        '"class_labels": torch.tensor([1, 2, 3, 4])}',
    ),
    "PixArtTransformer2DModel": (
        "num_attention_heads=2, attention_head_dim=16, in_channels=4, num_layers=2, "
        "sample_size=16, cross_attention_dim=32, caption_channels=16, norm_num_groups=8, "
        "use_additional_conditions=False",
        '{"hidden_states": torch.randn(4, 4, 16, 16), "timestep": torch.tensor([1, 5, 9, 20]), '
        '"encoder_hidden_states": torch.randn(4, 8, 16)}',
    ),
    "PriorTransformer": (
        "num_attention_heads=2, attention_head_dim=16, num_layers=2, embedding_dim=16, "
        "num_embeddings=7, additional_embeddings=4",
        '{"hidden_states": torch.randn(4, 16), "timestep": torch.tensor([1, 5, 9, 20]), '
        '"proj_embedding": torch.randn(4, 16), "encoder_hidden_states": torch.randn(4, 7, 16)}',
    ),
    "SD3Transformer2DModel": (
        "sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16, "
        "num_attention_heads=2, joint_attention_dim=16, caption_projection_dim=32, "
        "pooled_projection_dim=16, out_channels=4, pos_embed_max_size=16",
        '{"hidden_states": torch.randn(4, 4, 16, 16), "timestep": torch.tensor([1, 5, 9, 20]), '
        '"encoder_hidden_states": torch.randn(4, 8, 16), '
        '"pooled_projections": torch.randn(4, 16)}',
    ),
    "FluxTransformer2DModel": (
        "patch_size=1, in_channels=16, num_layers=1, num_single_layers=1, attention_head_dim=16, "
        "num_attention_heads=2, joint_attention_dim=16, pooled_projection_dim=16, "
        "axes_dims_rope=(4, 4, 8)",
        '{"hidden_states": torch.randn(2, 16, 16), "timestep": torch.rand(2), '
        '"encoder_hidden_states": torch.randn(2, 8, 16), '
        '"pooled_projections": torch.randn(2, 16), "img_ids": torch.zeros(16, 3), '
        '"txt_ids": torch.zeros(8, 3)}',
    ),
    "UNet1DModel": (
        "sample_size=64, in_channels=4, out_channels=4, block_out_channels=(16, 32), "
        "extra_in_channels=32, down_block_types=('DownBlock1DNoSkip', 'DownBlock1D'), "
        "up_block_types=('UpBlock1D', 'UpBlock1DNoSkip')",
        '{"sample": torch.randn(4, 4, 64), "timestep": torch.tensor([1, 5, 9, 20])}',
    ),
}

_WRAPPED = "num_tokens=96, max_seq_len=64"
_LAYERS = "dim=32, depth=2, heads=2, attn_dim_head=16"


def _x_transformers() -> Iterator[Subject]:
    kinds = {
        "rotary": "rotary_pos_emb=True",
        "alibi": "alibi_pos_bias=True, alibi_num_heads=1",
        "glu": "ff_glu=True, ff_swish=True, ff_no_bias=True, use_rmsnorm=True",
        "macaron": "macaron=True",
        "residual_attention": "residual_attn=True",
        "t5_bias": "rel_pos_bias=True",
        "qk_norm": "attn_qk_norm=True, attn_qk_norm_dim_scale=True",
        "talking_heads": "attn_pre_talking_heads=True, attn_post_talking_heads=True",
        "grouped": "attn_kv_heads=1, attn_flash=True",
        "dropout": "attn_dropout=0.1, ff_dropout=0.1, layer_dropout=0.0",
    }
    imports = "from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper"
    for name, options in kinds.items():
        layers = f"attn_layers=Decoder({_LAYERS}, {options})"
        model = f"AutoregressiveWrapper(TransformerWrapper({_WRAPPED}, {layers}))"
        yield _subject("x-transformers", name, "decoder", imports, model, _TOKENS)
    imports = "from x_transformers import ViTransformerWrapper, Encoder"
    model = (
        "ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, "
        f"attn_layers=Encoder({_LAYERS}))"
    )
    yield _subject("x-transformers", "vision", "vision", imports, model, images(32))


_MODELS_OF_SEGMENTATION = (
    "Unet UnetPlusPlus MAnet Linknet FPN PSPNet PAN DeepLabV3 DeepLabV3Plus UPerNet Segformer"
).split()


def _segmentation() -> Iterator[Subject]:
    for name in _MODELS_OF_SEGMENTATION:
        imports = f"from segmentation_models_pytorch import {name}"
        model = f"{name}('resnet18', encoder_weights=None, classes=3)"
        inputs = images(256 if name == "PAN" else 64, batch=2)
        yield _subject("segmentation-models", name, "segmentation", imports, model, inputs)


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
_GRAPH = "(torch.randn(40, 16), torch.randint(0, 40, (2, 120)))"
_GRAPHS = {
    name: (f"in_channels=16, hidden_channels=32, num_layers=2, out_channels=8{more}", _GRAPH)
    for name, more in {"GCN": "", "GIN": "", "GraphSAGE": "", "EdgeCNN": ""}.items()
}
_LONG = "dim=32, depth=2, heads=2"
_SEQUENCES = {
    "performer_pytorch": ("PerformerLM", f"num_tokens=96, max_seq_len=64, {_LONG}", _TOKENS),
    "linear_attention_transformer": (
        "LinearAttentionTransformerLM",
        f"num_tokens=96, max_seq_len=64, {_LONG}, causal=True",
        _TOKENS,
    ),
    "reformer_pytorch": (
        "ReformerLM",
        f"num_tokens=96, max_seq_len=64, {_LONG}, bucket_size=16, n_hashes=2, causal=True",
        _TOKENS,
    ),
    "sinkhorn_transformer": (
        "SinkhornTransformerLM",
        f"num_tokens=96, max_seq_len=64, {_LONG}, bucket_size=16, causal=True",
        _TOKENS,
    ),
    "local_attention": (
        "LocalTransformer",
        f"num_tokens=96, max_seq_len=64, {_LONG}, causal=True, local_attn_window_size=16",
        _TOKENS,
    ),
    "linformer": ("LinformerLM", f"num_tokens=96, seq_len=64, {_LONG}, k=16", _TOKENS),
    "nystrom_attention": ("Nystromformer", f"{_LONG}, dim_head=16, num_landmarks=16", _WIDE),
    "minGRU_pytorch": ("minGRU", "dim=32", _WIDE),
    "conformer": ("Conformer", f"{_LONG}, dim_head=16, conv_kernel_size=7", _WIDE),
    "g_mlp_pytorch": ("gMLP", "num_tokens=96, dim=32, depth=2, seq_len=64", _TOKENS),
    "pytorch_tcn": ("TCN", "num_inputs=8, num_channels=[16, 16, 16]", "(torch.randn(4, 8, 64),)"),
    "mambapy.mamba": (
        "Mamba",
        "__import__('mambapy.mamba').mamba.MambaConfig(d_model=32, n_layers=2)",
        _WIDE,
    ),
    "perceiver_pytorch": (
        "Perceiver",
        "input_channels=3, input_axis=2, num_freq_bands=4, max_freq=8.0, depth=2, num_latents=16, "
        "latent_dim=32, cross_heads=1, latent_heads=2, cross_dim_head=16, latent_dim_head=16, "
        "num_classes=10",
        "(torch.randn(4, 16, 16, 3),)",
    ),
    "mlp_mixer_pytorch": (
        "MLPMixer",
        "image_size=64, channels=3, patch_size=16, dim=32, depth=2, num_classes=10",
        images(64),
    ),
    "timesformer_pytorch": (
        "TimeSformer",
        "dim=32, image_size=32, patch_size=8, num_frames=4, num_classes=10, depth=2, heads=2, "
        "dim_head=16",
        "(torch.randn(2, 4, 3, 32, 32),)",
    ),
    "siren_pytorch": (
        "SirenNet",
        "dim_in=2, dim_hidden=64, dim_out=3, num_layers=3",
        "(torch.randn(256, 2),)",
    ),
    "egnn_pytorch": (
        "EGNN_Network",
        "num_tokens=21, dim=16, depth=2, num_nearest_neighbors=4",
        "(torch.randint(0, 21, (2, 24)), torch.randn(2, 24, 3))",
    ),
    "vector_quantize_pytorch": ("FSQ", "levels=[8, 5, 5, 5], dim=32", _WIDE),
    "denoising_diffusion_pytorch": (
        "Unet",
        "dim=16, dim_mults=(1, 2), flash_attn=False",
        "(torch.randn(2, 3, 32, 32), torch.tensor([3, 7]))",
    ),
    "soft_moe_pytorch": ("SoftMoE", "dim=32, seq_len=64, num_experts=4", _WIDE),
    "axial_attention": (
        "AxialAttention",
        "dim=16, dim_index=1, heads=2, num_dimensions=2",
        "(torch.randn(4, 16, 16, 16),)",
    ),
    "lambda_networks": (
        "LambdaLayer",
        "dim=16, dim_out=16, n=8, dim_k=8, heads=2, dim_u=1",
        "(torch.randn(4, 16, 8, 8),)",
    ),
    "pytorch_tabnet.tab_network": (
        "TabNet",
        "input_dim=16, output_dim=4, n_d=8, n_a=8, n_steps=2, group_attention_matrix=torch.eye(16)",
        "(torch.randn(64, 16),)",
    ),
    "efficientnet_pytorch": (
        "EfficientNet",
        "*__import__('efficientnet_pytorch').utils"
        ".get_model_params('efficientnet-b0', {'num_classes': 10})",
        images(64),
    ),
    "native_sparse_attention_pytorch": (
        "SparseAttention",
        "dim=32, dim_head=16, heads=2, sliding_window_size=4, compress_block_size=4, "
        "compress_block_sliding_stride=2, selection_block_size=4, num_selected_blocks=2",
        _WIDE,
    ),
    "block_recurrent_transformer_pytorch": (
        "BlockRecurrentTransformer",
        "num_tokens=96, dim=32, depth=2, dim_head=16, heads=2, max_seq_len=64, block_width=16, "
        "num_state_vectors=16",
        _TOKENS,
    ),
    "kornia.models.tiny_vit": (
        "TinyViT",
        "img_size=64, num_classes=10, embed_dims=[16, 32, 48, 64], depths=[1, 1, 1, 1], "
        "num_heads=[1, 2, 3, 4], window_sizes=[2, 2, 2, 2], drop_path_rate=0.0",
        images(64),
    ),
    "e3nn.nn.models.v2106.gate_points_networks": (
        "SimpleNetwork",
        "irreps_in='3x0e', irreps_out='1x0e', max_radius=2.0, num_neighbors=3.0, num_nodes=5.0",
        '({"pos": torch.randn(12, 3), "x": torch.randn(12, 3), '
        '"batch": torch.zeros(12, dtype=torch.long)},)',
    ),
    "point_transformer_pytorch": (
        "PointTransformerLayer",
        "dim=16, pos_mlp_hidden_dim=16, attn_mlp_hidden_mult=2",
        "(torch.randn(2, 24, 16), torch.randn(2, 24, 3))",
    ),
    "st_moe_pytorch": ("MoE", "dim=32, num_experts=4", _WIDE),
}


def _each() -> Iterator[Subject]:
    for module, (name, arguments, inputs) in _SEQUENCES.items():
        package = module.partition(".")[0].replace("_", "-")
        imports = f"from {module} import {name}"
        yield _subject(package, name, "package", imports, f"{name}({arguments})", inputs)
    yield _subject(
        "open-clip",
        "CLIP",
        "multimodal",
        "from open_clip.model import CLIP",
        "CLIP(embed_dim=16, vision_cfg=dict(layers=2, width=32, head_width=16, patch_size=8, "
        "image_size=32), text_cfg=dict(context_length=16, vocab_size=96, width=32, heads=2, "
        "layers=2))",
        "(torch.randn(4, 3, 32, 32), torch.randint(1, 96, (4, 16)))",
    )
    yield _subject(
        "pytorchcv",
        "resnext14_16x4d",
        "convolutional",
        "from pytorchcv.model_provider import get_model",
        "get_model('resnext14_16x4d', num_classes=10)",
        images(224, batch=2),
    )


PACKAGES: tuple[Subject, ...] = (
    *_vit_pytorch(),
    *_of("diffusers", "diffusion", "diffusers", _DIFFUSERS),
    *_x_transformers(),
    *_segmentation(),
    *_of("monai", "segmentation", "monai.networks.nets", _MONAI),
    *_of("torch-geometric", "graph", "torch_geometric.nn", _GRAPHS),
    *_each(),
)
