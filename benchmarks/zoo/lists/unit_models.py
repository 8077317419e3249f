"""Models that cannot be planned as a whole: routing by values, LayerDrop, matching, ragged images.

Their layers are planned as units that are found (`--units auto`).
"""

from __future__ import annotations

from subject import Subject

_IDS = "torch.randint(1, 96, (4, 64))"
_CAUSAL = f'{{"input_ids": {_IDS}, "labels": {_IDS}, "use_cache": False}}'
_SEQUENCES = f'{{"input_ids": {_IDS}, "labels": {_IDS}}}'
_TEXT = (
    "vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=4, "
    "num_attention_heads=2"
)
_DECODER = f"{_TEXT}, num_key_value_heads=1, max_position_embeddings=128"
_BOTH = (
    "vocab_size=96, d_model=32, encoder_layers=4, decoder_layers=4, encoder_attention_heads=2, "
    "decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64"
)
_TOKENS = "pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=2"
_DETR = (
    "d_model=64, encoder_layers=6, decoder_layers=6, encoder_attention_heads=2, "
    "decoder_attention_heads=2, encoder_ffn_dim=256, decoder_ffn_dim=256, num_queries=100, "
    "num_labels=5, use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, "
    "backbone_config=ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 16, 32], "
    'depths=[1, 1, 1, 1], out_features=["stage4"])'
)
_BOXES = (
    '{"pixel_values": torch.randn(2, 3, 256, 256), "labels": [{"class_labels": '
    'torch.tensor([1, 3]), "boxes": torch.rand(2, 4) / 2 + 0.2} for _ in range(2)]}'
)
_EXPERTS, _LONG, _DETECTION = "mixture of experts", "long sequences", "detection"
_PICTURES, _SPEECH, _GRAPHS, _CODES = "language and vision", "audio", "graphs", "codebooks"


def _of(kind: str, model: str, config: str, arguments: str, inputs: str, *more: str) -> Subject:
    imports = f"from transformers import {', '.join((config, model, *more))}"
    built = f"{model}({config}({arguments}))"
    return Subject("units", model, kind, imports, built, inputs, units=("auto",))


UNITS: tuple[Subject, ...] = (
    _of(
        _EXPERTS,
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        "vocab_size=96, d_model=32, d_kv=16, d_ff=64, num_layers=4, num_decoder_layers=4, "
        "num_heads=2, num_experts=4, decoder_start_token_id=0",
        _CAUSAL.replace("use_cache", 'attention_mask": torch.ones(4, 64), "use_cache'),
    ),
    _of(
        _EXPERTS,
        "NllbMoeForConditionalGeneration",
        "NllbMoeConfig",
        f"{_BOTH}, num_experts=4, expert_capacity=64, encoder_sparse_step=2, "
        f"decoder_sparse_step=2, {_TOKENS}",
        _CAUSAL,
    ),
    _of(
        _EXPERTS,
        "DbrxForCausalLM",
        "DbrxConfig",
        "d_model=32, n_heads=2, n_layers=4, max_seq_len=64, vocab_size=96, "
        'attn_config={"kv_n_heads": 1, "clip_qkv": 8.0, "rope_theta": 1e4}, '
        'ffn_config={"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2}',
        _CAUSAL,
    ),
    _of(
        _LONG,
        "LongformerForMaskedLM",
        "LongformerConfig",
        f"{_TEXT}, attention_window=16, max_position_embeddings=128, pad_token_id=0",
        _SEQUENCES.replace(
            "}", ', "global_attention_mask": torch.eye(1, 64).long().expand(4, 64)}'
        ),
    ),
    _of(
        _LONG,
        "LEDForConditionalGeneration",
        "LEDConfig",
        f"{_BOTH}, attention_window=16, max_encoder_position_embeddings=128, "
        f"max_decoder_position_embeddings=128, {_TOKENS}",
        _CAUSAL,
    ),
    _of(_DETECTION, "DetrForObjectDetection", "DetrConfig", _DETR, _BOXES, "ResNetConfig"),
    _of(
        _DETECTION,
        "ConditionalDetrForObjectDetection",
        "ConditionalDetrConfig",
        _DETR,
        _BOXES,
        "ResNetConfig",
    ),
    _of(
        _DETECTION,
        "Mask2FormerForUniversalSegmentation",
        "Mask2FormerConfig",
        "hidden_dim=32, feature_size=32, mask_feature_size=32, encoder_feedforward_dim=64, "
        "dim_feedforward=64, encoder_layers=3, decoder_layers=4, num_attention_heads=2, "
        "num_queries=20, num_labels=5, train_num_points=256, backbone_config=SwinConfig("
        "embed_dim=8, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2], window_size=4, image_size=64, "
        'out_features=["stage1", "stage2", "stage3", "stage4"])',
        '{"pixel_values": torch.randn(2, 3, 64, 64), "mask_labels": [torch.randint(0, 2, '
        '(2, 64, 64)).float() for _ in range(2)], "class_labels": [torch.tensor([1, 3])] * 2}',
        "SwinConfig",
    ),
    _of(
        _PICTURES,
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        f"text_config=LlamaConfig({_DECODER}), vision_config=CLIPVisionConfig(hidden_size=32, "
        "intermediate_size=64, num_hidden_layers=4, num_attention_heads=2, image_size=32, "
        "patch_size=8, projection_dim=32), image_token_id=95, vision_feature_layer=-2, "
        'vision_feature_select_strategy="default"',
        '{"input_ids": torch.cat([torch.full((4, 16), 95), torch.randint(1, 90, (4, 48))], 1), '
        '"pixel_values": torch.randn(4, 3, 32, 32), "labels": torch.randint(1, 90, (4, 64)), '
        '"use_cache": False}',
        "CLIPVisionConfig",
        "LlamaConfig",
    ),
    _of(
        _PICTURES,
        "Qwen2VLForConditionalGeneration",
        "Qwen2VLConfig",
        f"text_config=dict({_DECODER}, rope_parameters={{'rope_type': 'default', "
        "'rope_theta': 1e4, 'mrope_section': [2, 3, 3]}), vision_config=dict(depth=4, "
        "embed_dim=32, hidden_size=32, num_heads=2, mlp_ratio=2, patch_size=4), "
        "image_token_id=95, vision_start_token_id=94, video_token_id=93",
        '{"input_ids": torch.cat([torch.full((2, 16), 95), torch.randint(1, 90, (2, 48))], 1), '
        '"pixel_values": torch.randn(128, 96), "image_grid_thw": torch.tensor([[1, 8, 8]] * 2), '
        '"mm_token_type_ids": torch.cat([torch.ones(2, 16), torch.zeros(2, 48)], 1).long(), '
        '"labels": torch.randint(1, 90, (2, 64)), "use_cache": False}',
    ),
    _of(
        _SPEECH,
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        f"{_TEXT}, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), "
        "num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, "
        'mask_time_prob=0.0, layerdrop=0.1, pad_token_id=0, ctc_loss_reduction="mean"',
        '{"input_values": torch.randn(4, 2000), "labels": torch.randint(1, 96, (4, 8))}',
    ),
    Subject(
        "units",
        "NaViT",
        "ragged images",
        "from vit_pytorch.na_vit import NaViT",
        "NaViT(image_size=64, patch_size=8, num_classes=5, dim=32, depth=4, heads=2, mlp_dim=64, "
        "dropout=0.1, emb_dropout=0.1, token_dropout_prob=0.1)",
        "([[torch.randn(3, 64, 32), torch.randn(3, 32, 32)], [torch.randn(3, 64, 64)]],)",
        units=("auto",),
    ),
    Subject(
        "units",
        "GraphSAGE",
        _GRAPHS,
        "from torch_geometric.nn import GraphSAGE",
        "GraphSAGE(16, 64, num_layers=4, out_channels=8, dropout=0.1)",
        "(torch.randn(200, 16), torch.randint(0, 200, (2, 800)))",
        units=("auto",),
    ),
    Subject(
        "units",
        "GAT",
        _GRAPHS,
        "from torch_geometric.nn import GAT",
        "GAT(16, 64, num_layers=4, out_channels=8, heads=4, dropout=0.1)",
        "(torch.randn(200, 16), torch.randint(0, 200, (2, 800)))",
        units=("auto",),
    ),
)
