"""Model types of transformers, each with its loss."""

from __future__ import annotations

from subject import Subject

IDS = "torch.randint(1, 96, (4, 32))"
CAUSAL = f"""{{
        "input_ids": {IDS},
        "labels": {IDS},
        "use_cache": False,
    }}"""
MASKED = f'{{"input_ids": {IDS}, "labels": {IDS}}}'
CLASSES = "torch.randint(0, 2, (4,))"
AUDIO = f'{{"input_values": torch.randn(4, 2000), "labels": {CLASSES}}}'


def of(kind: str, model: str, config: str, arguments: str, inputs: str) -> Subject:
    imports = f"from transformers import {config}, {model}"
    return Subject("transformers", model, kind, imports, f"{model}({config}({arguments}))", inputs)


def pictures(size: int, channels: int = 3) -> str:
    pixels = f"torch.randn(4, {channels}, {size}, {size})"
    return f'{{"pixel_values": {pixels}, "labels": {CLASSES}}}'


VOCABULARY = "vocab_size=96"
DEPTH = "num_hidden_layers=2, num_attention_heads=2"
BODY = f"hidden_size=32, intermediate_size=64, {DEPTH}"
TEXT = f"{VOCABULARY}, {BODY}"
ROPE = f"{TEXT}, max_position_embeddings=64"
GROUPED = f"{ROPE}, num_key_value_heads=1"
BART = (
    f"{VOCABULARY}, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2, "
    "decoder_attention_heads=2, encoder_ffn_dim=64, decoder_ffn_dim=64, "
    "max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=2, "
    "decoder_start_token_id=2"
)
T5 = (
    f"{VOCABULARY}, d_model=32, d_kv=16, d_ff=64, num_layers=2, num_heads=2, "
    "decoder_start_token_id=0"
)
SPEECH = (
    f"{TEXT}, conv_dim=(16, 16), conv_kernel=(10, 3), conv_stride=(5, 2), "
    "num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=2, "
    "mask_time_prob=0.0, layerdrop=0.0, classifier_proj_size=16"
)
DECODER, ENCODER, BOTH = "decoder", "encoder", "encoder-decoder"
VISION, AUDIO_KIND, EXPERTS, SPACE = "vision", "audio", "mixture of experts", "state space"

TRANSFORMERS: tuple[Subject, ...] = (
    of(
        DECODER,
        "GPT2LMHeadModel",
        "GPT2Config",
        f"{VOCABULARY}, n_embd=32, n_layer=2, n_head=2",
        CAUSAL,
    ),
    of(DECODER, "LlamaForCausalLM", "LlamaConfig", GROUPED, CAUSAL),
    of(ENCODER, "BertForMaskedLM", "BertConfig", TEXT, MASKED),
    of(
        ENCODER,
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        f"{VOCABULARY}, dim=32, hidden_dim=64, n_layers=2, n_heads=2",
        MASKED,
    ),
    of(BOTH, "T5ForConditionalGeneration", "T5Config", T5, CAUSAL),
    of(BOTH, "BartForConditionalGeneration", "BartConfig", BART, CAUSAL),
    of(
        VISION,
        "ViTForImageClassification",
        "ViTConfig",
        f"{BODY}, image_size=32, patch_size=8",
        pictures(32),
    ),
    of(
        VISION,
        "SwinForImageClassification",
        "SwinConfig",
        "embed_dim=16, depths=[1, 1], num_heads=[2, 2], window_size=4, image_size=32, patch_size=2",
        pictures(32),
    ),
    of(AUDIO_KIND, "Wav2Vec2ForSequenceClassification", "Wav2Vec2Config", SPEECH, AUDIO),
    of(
        AUDIO_KIND,
        "WhisperForConditionalGeneration",
        "WhisperConfig",
        f"{BART}, num_mel_bins=8, max_source_positions=32, max_target_positions=64",
        f'{{"input_features": torch.randn(4, 8, 64), "labels": {IDS}, "use_cache": False}}',
    ),
    of(EXPERTS, "MixtralForCausalLM", "MixtralConfig", f"{GROUPED}, num_local_experts=4", CAUSAL),
    of(
        EXPERTS,
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        f"{GROUPED}, moe_intermediate_size=32, shared_expert_intermediate_size=32, "
        "num_experts=4, num_experts_per_tok=2",
        CAUSAL,
    ),
    of(
        SPACE,
        "MambaForCausalLM",
        "MambaConfig",
        f"{VOCABULARY}, hidden_size=16, state_size=4, num_hidden_layers=2",
        CAUSAL.replace("32)", "8)"),
    ),
    of(
        SPACE,
        "Mamba2ForCausalLM",
        "Mamba2Config",
        f"{VOCABULARY}, hidden_size=16, state_size=8, num_hidden_layers=2, num_heads=4, "
        "head_dim=8, n_groups=1, chunk_size=8",
        CAUSAL,
    ),
    of(DECODER, "Qwen3ForCausalLM", "Qwen3Config", f"{GROUPED}, head_dim=16", CAUSAL),
    of(DECODER, "Gemma2ForCausalLM", "Gemma2Config", f"{GROUPED}, head_dim=16", CAUSAL),
    of(ENCODER, "RobertaForMaskedLM", "RobertaConfig", TEXT, MASKED),
    of(ENCODER, "AlbertForMaskedLM", "AlbertConfig", f"{TEXT}, embedding_size=16", MASKED),
    of(BOTH, "PegasusForConditionalGeneration", "PegasusConfig", BART, CAUSAL),
    of(BOTH, "MarianMTModel", "MarianConfig", BART, CAUSAL),
    of(
        VISION,
        "ConvNextForImageClassification",
        "ConvNextConfig",
        "hidden_sizes=[16, 32], depths=[3, 3], num_stages=2",
        pictures(64),
    ),
    of(
        VISION,
        "SegformerForImageClassification",
        "SegformerConfig",
        "depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32], num_attention_heads=[1, 1, 2, 2]",
        pictures(64),
    ),
    of(AUDIO_KIND, "HubertForSequenceClassification", "HubertConfig", SPEECH, AUDIO),
    of(
        AUDIO_KIND,
        "ASTForAudioClassification",
        "ASTConfig",
        f"{BODY}, max_length=32, num_mel_bins=16, patch_size=8, frequency_stride=8, time_stride=8",
        f'{{"input_values": torch.randn(4, 32, 16), "labels": {CLASSES}}}',
    ),
    of(
        EXPERTS,
        "OlmoeForCausalLM",
        "OlmoeConfig",
        f"{GROUPED}, num_experts=4, num_experts_per_tok=2",
        CAUSAL,
    ),
    of(DECODER, "MistralForCausalLM", "MistralConfig", GROUPED, CAUSAL),
    of(DECODER, "Phi3ForCausalLM", "Phi3Config", f"{GROUPED}, pad_token_id=0", CAUSAL),
    of(DECODER, "GPTNeoXForCausalLM", "GPTNeoXConfig", ROPE, CAUSAL),
    of(
        DECODER,
        "OPTForCausalLM",
        "OPTConfig",
        f"{VOCABULARY}, hidden_size=32, ffn_dim=64, {DEPTH}, word_embed_proj_dim=32, "
        "max_position_embeddings=64",
        CAUSAL,
    ),
    of(
        DECODER,
        "BloomForCausalLM",
        "BloomConfig",
        f"{VOCABULARY}, hidden_size=32, n_layer=4, n_head=2",
        CAUSAL,
    ),
    of(
        DECODER,
        "FalconForCausalLM",
        "FalconConfig",
        f"{VOCABULARY}, hidden_size=32, {DEPTH}",
        CAUSAL,
    ),
    of(ENCODER, "ElectraForMaskedLM", "ElectraConfig", f"{TEXT}, embedding_size=16", MASKED),
    of(
        ENCODER,
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        f"{TEXT}, relative_attention=True, pos_att_type=['c2p', 'p2c']",
        MASKED,
    ),
    of(
        ENCODER,
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        f"{TEXT}, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2",
        MASKED,
    ),
    of(
        VISION,
        "ResNetForImageClassification",
        "ResNetConfig",
        "embedding_size=16, hidden_sizes=[32, 64], depths=[3, 3]",
        pictures(64),
    ),
    of(
        VISION,
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        "depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 32, 32], num_attention_heads=[1, 1, 2, "
        "2], decoder_hidden_size=16",
        '{"pixel_values": torch.randn(4, 3, 64, 64), "labels": torch.randint(0, 2, (4, 64, 64))}',
    ),
    of(
        EXPERTS,
        "SwitchTransformersForConditionalGeneration",
        "SwitchTransformersConfig",
        f"{T5}, num_experts=4",
        CAUSAL.replace("use_cache", 'attention_mask": torch.ones(4, 32), "use_cache'),
    ),
    of(
        SPACE,
        "FalconMambaForCausalLM",
        "FalconMambaConfig",
        f"{VOCABULARY}, hidden_size=16, state_size=4, num_hidden_layers=2",
        CAUSAL.replace("32)", "8)"),
    ),
    of(
        "language and vision",
        "CLIPModel",
        "CLIPConfig",
        f"text_config=dict({ROPE}), vision_config=dict({BODY}, image_size=32, "
        "patch_size=8), projection_dim=16",
        f'{{"input_ids": {IDS}, "pixel_values": torch.randn(4, 3, 32, 32), "return_loss": True}}',
    ),
    of(
        "recurrent",
        "RwkvForCausalLM",
        "RwkvConfig",
        f"{VOCABULARY}, hidden_size=16, attention_hidden_size=16, intermediate_size=32, "
        "num_hidden_layers=2",
        CAUSAL.replace("32)", "8)"),
    ),
)
