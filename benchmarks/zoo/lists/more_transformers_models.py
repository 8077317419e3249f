"""Further model types of transformers, each with its loss.

They were listed before any of them was tried. LayerDrop and masks of audio by the host's coin are
off, as in the list beside; every other option that is not about size is the library's own.
"""

from __future__ import annotations

from subject import Subject

from lists.transformers_models import (
    AUDIO,
    AUDIO_KIND,
    BART,
    BODY,
    BOTH,
    CAUSAL,
    DECODER,
    DEPTH,
    ENCODER,
    EXPERTS,
    GROUPED,
    IDS,
    MASKED,
    ROPE,
    SPACE,
    SPEECH,
    T5,
    TEXT,
    VISION,
    VOCABULARY,
    of,
    pictures,
)

_GPT = f"{VOCABULARY}, n_positions=64, n_embd=32, n_layer=2"
_FOUR = "depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32]"
_TWO_TOWERS = f"vision_config=dict({BODY}, image_size=32, patch_size=8)"
_SERIES_CONFIG = (
    "prediction_length=6, context_length=12, lags_sequence=[1, 2, 3], num_time_features=2, "
    "d_model=16, encoder_layerdrop=0.0, decoder_layerdrop=0.0"
)
_SERIES = (
    '{"past_values": torch.randn(4, 15), "past_time_features": torch.randn(4, 15, 2), '
    '"past_observed_mask": torch.ones(4, 15), "future_values": torch.randn(4, 6), '
    '"future_time_features": torch.randn(4, 6, 2)}'
)
_PATCHES_CONFIG = "num_input_channels=2, context_length=32, patch_length=8, prediction_length=8"
_PATCHES = '{"past_values": torch.randn(4, 32, 2), "future_values": torch.randn(4, 8, 2)}'
_PAIRS = '"pixel_values": torch.randn(4, 3, 32, 32)'
_TIME, _PICTURES = "time series", "language and vision"


def _causal(name: str, arguments: str, kind: str = DECODER) -> Subject:
    return of(kind, f"{name}ForCausalLM", f"{name}Config", arguments, CAUSAL)


def _masked(name: str, arguments: str) -> Subject:
    return of(ENCODER, f"{name}ForMaskedLM", f"{name}Config", arguments, MASKED)


def _both(name: str, arguments: str) -> Subject:
    return of(BOTH, f"{name}ForConditionalGeneration", f"{name}Config", arguments, CAUSAL)


def _seen(name: str, arguments: str, size: int = 64) -> Subject:
    inputs = pictures(size)
    return of(VISION, f"{name}ForImageClassification", f"{name}Config", arguments, inputs)


def _heard(name: str, arguments: str = SPEECH) -> Subject:
    model = f"{name}ForSequenceClassification"
    return of(AUDIO_KIND, model, f"{name}Config", arguments, AUDIO)


def _forecast(name: str, arguments: str, inputs: str = _SERIES) -> Subject:
    return of(_TIME, f"{name}ForPrediction", f"{name}Config", arguments, inputs)


def _pairs(model: str, config: str, arguments: str, more: str) -> Subject:
    inputs = f'{{"input_ids": {IDS}, {_PAIRS}, {more}}}'
    return of(_PICTURES, model, config, arguments, inputs)


MORE_TRANSFORMERS: tuple[Subject, ...] = (
    _causal("GPTBigCode", f"{_GPT}, n_head=2"),
    _causal("StableLm", GROUPED),
    _causal("Starcoder2", GROUPED),
    _causal("Phi", ROPE),
    _causal("Cohere", GROUPED),
    _causal("Granite", GROUPED),
    _causal("Olmo2", GROUPED),
    _causal("Nemotron", GROUPED),
    _causal("XGLM", f"{VOCABULARY}, d_model=32, ffn_dim=64, num_layers=2, attention_heads=2"),
    _causal("BioGpt", ROPE),
    _causal("CodeGen", f"{_GPT}, n_head=4, rotary_dim=4"),
    _causal(
        "GPTNeo",
        f"{VOCABULARY}, hidden_size=32, intermediate_size=64, num_layers=2, num_heads=2, "
        'attention_types=[[["global", "local"], 1]], window_size=8, max_position_embeddings=64',
    ),
    _causal("Mpt", f"{VOCABULARY}, d_model=32, n_heads=2, n_layers=2, max_seq_len=64"),
    _causal("Qwen2", GROUPED),
    of(
        DECODER,
        "Gemma3ForCausalLM",
        "Gemma3TextConfig",
        f"{GROUPED}, head_dim=16, sliding_window=16",
        CAUSAL,
    ),
    _causal("SmolLM3", f"{GROUPED}, pad_token_id=0"),
    _masked("MobileBert", f"{TEXT}, embedding_size=16, intra_bottleneck_size=16"),
    _masked("ConvBert", f"{TEXT}, embedding_size=16"),
    _masked("FNet", f"{VOCABULARY}, hidden_size=32, intermediate_size=64, num_hidden_layers=2"),
    _masked("MPNet", TEXT),
    _masked("SqueezeBert", f"{TEXT}, embedding_size=32"),
    _masked(
        "Nystromformer",
        f"{TEXT}, num_landmarks=8, segment_means_seq_len=32, conv_kernel_size=9",
    ),
    _masked("Yoso", TEXT),
    _masked(
        "Funnel",
        f"{VOCABULARY}, block_sizes=[1, 1, 1], d_model=32, n_head=2, d_head=16, d_inner=64",
    ),
    _masked("IBert", TEXT),
    _masked("LayoutLM", TEXT),
    _masked("BigBird", f"{TEXT}, block_size=4, num_random_blocks=1"),
    _masked("RemBert", f"{TEXT}, input_embedding_size=16, output_embedding_size=32"),
    of(
        ENCODER,
        "SplinterForQuestionAnswering",
        "SplinterConfig",
        f"{TEXT}, question_token_id=1",
        f'{{"input_ids": {IDS}, "start_positions": torch.randint(0, 32, (4,)), '
        '"end_positions": torch.randint(0, 32, (4,))}',
    ),
    of(
        ENCODER,
        "XLNetLMHeadModel",
        "XLNetConfig",
        f"{VOCABULARY}, d_model=32, n_layer=2, n_head=2, d_inner=64",
        MASKED,
    ),
    _both("Blenderbot", BART),
    _both("MBart", BART),
    _both("M2M100", f"{BART}, encoder_layerdrop=0.0, decoder_layerdrop=0.0"),
    _both(
        "ProphetNet",
        f"{VOCABULARY}, hidden_size=32, encoder_ffn_dim=64, decoder_ffn_dim=64, "
        "num_encoder_layers=2, num_decoder_layers=2, num_encoder_attention_heads=2, "
        "num_decoder_attention_heads=2, max_position_embeddings=64",
    ),
    _both("FSMT", f"{BART}, src_vocab_size=96, tgt_vocab_size=96"),
    _both("UMT5", T5),
    _both("LongT5", f"{T5}, local_radius=7"),
    _seen("Beit", f"{BODY}, image_size=32, patch_size=8", 32),
    _seen(
        "Swinv2",
        "embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, image_size=32, patch_size=2",
        32,
    ),
    _seen("Pvt", f"{_FOUR}, num_attention_heads=[1, 1, 2, 2], image_size=64"),
    _seen("PoolFormer", _FOUR),
    _seen("Dinov2", f"hidden_size=32, {DEPTH}, image_size=32, patch_size=8", 32),
    _seen(
        "MobileViT",
        "image_size=64, hidden_sizes=[16, 24, 32], neck_hidden_sizes=[8, 8, 16, 16, 24, 32, 64], "
        "num_attention_heads=2",
    ),
    _seen(
        "Levit",
        "image_size=64, hidden_sizes=[16, 32, 48], num_attention_heads=[1, 2, 3], "
        "depths=[1, 1, 1], key_dim=[8, 8, 8]",
    ),
    _seen(
        "EfficientNet",
        "image_size=64, width_coefficient=0.25, depth_coefficient=1.0, hidden_dim=320",
    ),
    _seen(
        "Hiera", "image_size=[64, 64], embed_dim=16, depths=[1, 1, 1, 1], num_heads=[1, 1, 2, 2]"
    ),
    _seen(
        "FocalNet",
        "image_size=64, embed_dim=16, hidden_sizes=[16, 32], depths=[1, 1], focal_levels=[2, 2], "
        "focal_windows=[3, 3]",
    ),
    _seen("Bit", "embedding_size=16, hidden_sizes=[32, 64], depths=[1, 1], num_groups=4"),
    _seen("Cvt", "embed_dim=[16, 32, 64], num_heads=[1, 2, 2], depth=[1, 2, 3]"),
    of(
        VISION,
        "DPTForSemanticSegmentation",
        "DPTConfig",
        "hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2, "
        "image_size=32, patch_size=8, backbone_out_indices=[0, 1, 2, 3], "
        "neck_hidden_sizes=[8, 8, 16, 16], fusion_hidden_size=16",
        '{"pixel_values": torch.randn(4, 3, 32, 32), "labels": torch.randint(0, 2, (4, 32, 32))}',
    ),
    _heard("WavLM"),
    _heard("SEW"),
    of(
        AUDIO_KIND,
        "Speech2TextForConditionalGeneration",
        "Speech2TextConfig",
        f"{BART}, input_feat_per_channel=8, conv_channels=16, max_source_positions=32, "
        "max_target_positions=64",
        f'{{"input_features": torch.randn(4, 64, 8), "labels": {IDS}, "use_cache": False}}',
    ),
    _forecast("TimeSeriesTransformer", _SERIES_CONFIG),
    _forecast("Informer", _SERIES_CONFIG),
    _forecast("Autoformer", f"{_SERIES_CONFIG}, label_length=6, moving_average=5"),
    _forecast(
        "PatchTST",
        f"{_PATCHES_CONFIG}, patch_stride=8, d_model=32, ffn_dim=64, num_hidden_layers=2, "
        "num_attention_heads=2",
        _PATCHES,
    ),
    _forecast("PatchTSMixer", f"{_PATCHES_CONFIG}, d_model=16, num_layers=2", _PATCHES),
    _pairs(
        "SiglipModel",
        "SiglipConfig",
        f"text_config=dict({ROPE}), {_TWO_TOWERS}",
        '"return_loss": True',
    ),
    _pairs(
        "BlipForConditionalGeneration",
        "BlipConfig",
        f"text_config=dict({ROPE}, encoder_hidden_size=32, projection_dim=32, pad_token_id=0, "
        f"bos_token_id=1, sep_token_id=2), {_TWO_TOWERS}, projection_dim=32",
        f'"labels": {IDS}',
    ),
    _pairs(
        "AltCLIPModel",
        "AltCLIPConfig",
        f"text_config=dict({ROPE}, project_dim=32), {_TWO_TOWERS}, projection_dim=16",
        '"return_loss": True',
    ),
    _pairs(
        "ViltForQuestionAnswering",
        "ViltConfig",
        f"{TEXT}, image_size=32, patch_size=8, num_labels=5",
        '"labels": torch.rand(4, 5)',
    ),
    _causal(
        "RecurrentGemma",
        f"{VOCABULARY}, hidden_size=32, intermediate_size=64, num_hidden_layers=3, "
        "num_attention_heads=2, lru_width=32, attention_window_size=16",
        SPACE,
    ),
    _causal("Qwen3Moe", f"{GROUPED}, num_experts=4, num_experts_per_tok=2", EXPERTS),
    _causal("GraniteMoe", f"{GROUPED}, num_local_experts=4", EXPERTS),
)
