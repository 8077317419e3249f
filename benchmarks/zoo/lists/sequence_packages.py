"""Sequences, graphs, tables and single layers of small packages: chosen before they were tried."""

from __future__ import annotations

from collections.abc import Iterator

from subject import Subject, images

from lists.package_subject import of, subject

_TOKENS = "(torch.randint(0, 96, (4, 64)),)"
_WIDE = "(torch.randn(4, 64, 32),)"
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
        yield subject("x-transformers", name, "decoder", imports, model, _TOKENS)
    imports = "from x_transformers import ViTransformerWrapper, Encoder"
    model = (
        "ViTransformerWrapper(image_size=32, patch_size=8, num_classes=10, "
        f"attn_layers=Encoder({_LAYERS}))"
    )
    yield subject("x-transformers", "vision", "vision", imports, model, images(32))


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
        yield subject(package, name, "package", imports, f"{name}({arguments})", inputs)
    yield subject(
        "open-clip",
        "CLIP",
        "multimodal",
        "from open_clip.model import CLIP",
        "CLIP(embed_dim=16, vision_cfg=dict(layers=2, width=32, head_width=16, patch_size=8, "
        "image_size=32), text_cfg=dict(context_length=16, vocab_size=96, width=32, heads=2, "
        "layers=2))",
        "(torch.randn(4, 3, 32, 32), torch.randint(1, 96, (4, 16)))",
    )
    yield subject(
        "pytorchcv",
        "resnext14_16x4d",
        "convolutional",
        "from pytorchcv.model_provider import get_model",
        "get_model('resnext14_16x4d', num_classes=10)",
        images(224, batch=2),
    )


SEQUENCES: tuple[Subject, ...] = (
    *_x_transformers(),
    *of("torch-geometric", "graph", "torch_geometric.nn", _GRAPHS),
    *_each(),
)
