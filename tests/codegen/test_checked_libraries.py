"""Models of transformers that look at values: what they check is checked in each step."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from emitting import assert_bitwise, emit

pytest.importorskip("transformers")

LLAVA = """\
import torch
from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaForConditionalGeneration

SIZES = dict(hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2)


def build_model():
    vision = CLIPVisionConfig(**SIZES, image_size=16, patch_size=8, projection_dim=16)
    text = LlamaConfig(**SIZES, num_key_value_heads=2, vocab_size=100)
    parts = dict(vision_config=vision.to_dict(), text_config=text.to_dict())
    config = LlavaConfig(**parts, image_token_index=99, vision_feature_layer=-1)
    return LlavaForConditionalGeneration(config)


def example_inputs():
    ids = torch.arange(24).view(2, 12)
    ids[:, 2:6] = 99
    pixels = torch.randn(2, 3, 16, 16)
    return {"input_ids": ids, "pixel_values": pixels, "labels": ids.clone(), "use_cache": False}
"""
NYSTROM = """\
import torch
from transformers import NystromformerConfig, NystromformerModel


def build_model():
    sizes = dict(hidden_size=32, num_hidden_layers=1, num_attention_heads=2, intermediate_size=64)
    landmarks = dict(num_landmarks=4, segment_means_seq_len=16, max_position_embeddings=32)
    return NystromformerModel(NystromformerConfig(**sizes, **landmarks, vocab_size=100))


def example_inputs():
    return {"input_ids": torch.arange(32).view(2, 16)}
"""


def test_as_many_images_as_there_are_tokens_for_them(tmp_path: Path) -> None:
    emitted = emit(tmp_path, LLAVA)
    assert_bitwise(emitted)
    inputs = dict(emitted.loaded.kwargs)
    inputs["input_ids"] = inputs["input_ids"].clone()
    inputs["input_ids"][0, 2] = 1
    with pytest.raises(ValueError, match=r"in net\.py:\d+ \(in import_utils\.py:\d+\) is False"):
        emitted.planned.model(**inputs)


def test_a_mask_that_eager_leaves_out(tmp_path: Path) -> None:
    """All ones: eager looks, and trains without. Told that it is traced, it would not run."""
    emitted = emit(tmp_path, NYSTROM)
    assert_bitwise(emitted)
    ids = emitted.loaded.kwargs["input_ids"]
    emitted.planned.model(input_ids=torch.flip(ids, (0,)))
