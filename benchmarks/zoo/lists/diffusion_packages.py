"""Networks of diffusers, and its autoencoders: chosen before they were tried."""

from __future__ import annotations

from subject import Subject, images

from lists.package_subject import of

_LATENTS = '{"sample": torch.randn(4, 4, 16, 16), "timestep": torch.tensor([1, 5, 9, 20])}'
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

DIFFUSION: tuple[Subject, ...] = (*of("diffusers", "diffusion", "diffusers", _DIFFUSERS),)
