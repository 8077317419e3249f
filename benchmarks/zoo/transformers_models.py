"""Model types of transformers, each with its loss."""

from __future__ import annotations

from subject import Subject

_IDS = "torch.randint(1, 96, (4, 32))"
_CAUSAL = f"""{{
        "input_ids": {_IDS},
        "labels": {_IDS},
        "use_cache": False,
    }}"""
_MASKED = f'{{"input_ids": {_IDS}, "labels": {_IDS}}}'
_CLASSES = "torch.randint(0, 2, (4,))"
_AUDIO = f'{{"input_values": torch.randn(4, 2000), "labels": {_CLASSES}}}'


def _of(kind: str, model: str, config: str, arguments: str, inputs: str) -> Subject:
    imports = f"from transformers import {config}, {model}"
    return Subject("transformers", model, kind, imports, f"{model}({config}({arguments}))", inputs)


def _images(size: int, channels: int = 3) -> str:
    pixels = f"torch.randn(4, {channels}, {size}, {size})"
    return f'{{"pixel_values": {pixels}, "labels": {_CLASSES}}}'


_VOCABULARY = "vocab_size=96"
_DEPTH = "num_hidden_layers=2, num_attention_heads=2"
_BODY = f"hidden_size=32, intermediate_size=64, {_DEPTH}"
_TEXT = f"{_VOCABULARY}, {_BODY}"
_ROPE = f"{_TEXT}, max_position_embeddings=64"
_GROUPED = f"{_ROPE}, num_key_value_heads=1"
_BART = (
    f"{_VOCABULARY}, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, "
    "decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, "
    "max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, "
    "decoder_start_token_id=2"
)
_T5 = (
    f"{_VOCABULARY}, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, "
    "decoder_start_token_id=0"
)
_SPEECH = (
    f"{_TEXT}, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), "
    "num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, "
    "mask_time_prob=0.0, layerdrop=0.0, classifier_proj_size=16"
)
_DECODER, _ENCODER, _BOTH = "decoder", "encoder", "encoder-decoder"
_VISION, _AUDIO_KIND, _EXPERTS, _SPACE = "vision", "audio", "mixture of experts", "state space"

TRANSFORMERS: tuple[Subject, ...] = (
    _of(
        _DECODER,
        "GPT2LMHeadModel",
        "GPT2Config",
        f"{_VOCABULARY}, n_embd=32, n_layer=2, n_head=2",
        _CAUSAL,
    ),
    _of(_DECODER, "LlamaForCausalLM", "LlamaConfig", _GROUPED, _CAUSAL),
    _of(_ENCODER, "BertForMaskedLM", "BertConfig", _TEXT, _MASKED),
    _of(
        _ENCODER,
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        f"{_VOCABULARY}, dim=32, hidden_dim=64, n_layers=2, n_heads=2",
        _MASKED,
    ),
    _of(_BOTH, "T5ForConditionalGeneration", "T5Config", _T5, _CAUSAL),
    _of(_BOTH, "BartForConditionalGeneration", "BartConfig", _BART, _CAUSAL),
    _of(
        _VISION,
        "ViTForImageClassification",
        "ViTConfig",
        f"{_BODY}, image_size=32, patch_size=8",
        _images(32),
    ),
    _of(
        _VISION,
        "SwinForImageClassification",
        "SwinConfig",
        "embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, image_size=32, patch_size=2",
        _images(32),
    ),
    _of(_AUDIO_KIND, "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", _SPEECH, _AUDIO),
    _of(
        _AUDIO_KIND,
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        f"{_BART}, num_mel_bins=8, max_source_positions=32, max_target_positions=64",
        f'{{"input_features": torch.randn(4, 8, 64), "labels": {_IDS}, "use_cache": False}}',
    ),
    _of(
        _EXPERTS, "MixtralForCausalLM", "MixtralConfig", f"{_GROUPED}, num_local_experts=4", _CAUSAL
    ),
    _of(
        _EXPERTS,
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        f"{_GROUPED}, moe_intermediate_size=32, shared_expert_intermediate_size=32, "
        "num_experts=4, num_experts_per_tok=2",
        _CAUSAL,
    ),
    _of(
        _SPACE,
        "MambaForCausalLM",
        "MambaConfig",
        f"{_VOCABULARY}, hidden_size=16, state_size=4, num_hidden_layers=2",
        _CAUSAL.replace("32)", "8)"),
    ),
    _of(
        _SPACE,
        "Mamba2ForCausalLM",
        "Mamba2Config",
        f"{_VOCABULARY}, hidden_size=16, state_size=8, num_hidden_layers=2, num_heads=4, "
        "head_dim=8, n_groups=1, chunk_size=8",
        _CAUSAL,
    ),
    _of(_DECODER, "Qwen3ForCausalLM", "Qwen3Config", f"{_GROUPED}, head_dim=16", _CAUSAL),
    _of(_DECODER, "Gemma2ForCausalLM", "Gemma2Config", f"{_GROUPED}, head_dim=16", _CAUSAL),
    _of(_ENCODER, "RobertaForMaskedLM", "RobertaConfig", _TEXT, _MASKED),
    _of(_ENCODER, "AlbertForMaskedLM", "AlbertConfig", f"{_TEXT}, embedding_size=16", _MASKED),
    _of(_BOTH, "PegasusForConditionalGeneration", "PegasusConfig", _BART, _CAUSAL),
    _of(_BOTH, "MarianMTModel", "MarianConfig", _BART, _CAUSAL),
    _of(
        _VISION,
        "ConvNextForImageClassification",
        "ConvNextConfig",
        "hidden_sizes=[16, 32], depths=[3, 3], num_stages=2",
        _images(64),
    ),
    _of(
        _VISION,
        "SegformerForImageClassification",
        "SegformerConfig",
        "depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32], num_attention_heads=[1, 1, 2, 2]",
        _images(64),
    ),
    _of(_AUDIO_KIND, "HubertForSequenceClassification", "HubertConfig", _SPEECH, _AUDIO),
    _of(
        _AUDIO_KIND,
        "ASTForAudioClassification",
        "ASTConfig",
        f"{_BODY}, max_length=32, num_mel_bins=16, patch_size=8, frequency_stride=8, time_stride=8",
        f'{{"input_values": torch.randn(4, 32, 16), "labels": {_CLASSES}}}',
    ),
    _of(
        _EXPERTS,
        "OlmoeForCausalLM",
        "OlmoeConfig",
        f"{_GROUPED}, num_experts=4, num_experts_per_tok=2",
        _CAUSAL,
    ),
    _of(_DECODER, "MistralForCausalLM", "MistralConfig", _GROUPED, _CAUSAL),
    _of(_DECODER, "Phi3ForCausalLM", "Phi3Config", f"{_GROUPED}, pad_token_id=0", _CAUSAL),
    _of(_DECODER, "GPTNeoXForCausalLM", "GPTNeoXConfig", _ROPE, _CAUSAL),
    _of(
        _DECODER,
        "OPTForCausalLM",
        "OPTConfig",
        f"{_VOCABULARY}, hidden_size=32, ffn_dim=64, {_DEPTH}, word_embed_proj_dim=32, "
        "max_position_embeddings=64",
        _CAUSAL,
    ),
    _of(
        _DECODER,
        "BloomForCausalLM",
        "BloomConfig",
        f"{_VOCABULARY}, hidden_size=32, n_layer=4, n_head=2",
        _CAUSAL,
    ),
    _of(
        _DECODER,
        "FalconForCausalLM",
        "FalconConfig",
        f"{_VOCABULARY}, hidden_size=32, {_DEPTH}",
        _CAUSAL,
    ),
    _of(_ENCODER, "ElectraForMaskedLM", "ElectraConfig", f"{_TEXT}, embedding_size=16", _MASKED),
    _of(
        _ENCODER,
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        f"{_TEXT}, relative_attention=True, pos_att_type=['c2p', 'p2c']",
        _MASKED,
    ),
    _of(
        _ENCODER,
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        f"{_TEXT}, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2",
        _MASKED,
    ),
    _of(
        _VISION,
        "ResNetForImageClassification",
        "ResNetConfig",
        "embedding_size=16, hidden_sizes=[32, 64], depths=[3, 3]",
        _images(64),
    ),
    _of(
        _VISION,
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        "depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32], num_attention_heads=[1, 1, 2, "
        "2], decoder_hidden_size=16",
        '{"pixel_values": torch.randn(4, 3, 64, 64), "labels": torch.randint(0, 2, (4, 64, 64))}',
    ),
    _of(
        _EXPERTS,
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        f"{_T5}, num_experts=4",
        _CAUSAL.replace("use_cache", 'attention_mask": torch.ones(4, 32), "use_cache'),
    ),
    _of(
        _SPACE,
        "FalconMambaForCausalLM",
        "FalconMambaConfig",
        f"{_VOCABULARY}, hidden_size=16, state_size=4, num_hidden_layers=2",
        _CAUSAL.replace("32)", "8)"),
    ),
    _of(
        "language and vision",
        "CLIPModel",
        "CLIPConfig",
        f"text_config=dict({_ROPE}), vision_config=dict({_BODY}, image_size=32, "
        "patch_size=8), projection_dim=16",
        f'{{"input_ids": {_IDS}, "pixel_values": torch.randn(4, 3, 32, 32), "return_loss": True}}',
    ),
    _of(
        "recurrent",
        "RwkvForCausalLM",
        "RwkvConfig",
        f"{_VOCABULARY}, hidden_size=16, attention_hidden_size=16, intermediate_size=32, "
        "num_hidden_layers=2",
        _CAUSAL.replace("32)", "8)"),
    ),
)
