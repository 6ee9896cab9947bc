# SPDX-License-Identifier: Apache-2.0
"""Tiny random checkpoints of models that see: LLaVA, and Qwen2-VL."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conformance.engine.checkpoints import (
    TEXT_SIZE,
    Draws,
    text_config,
    text_weights,
    token_ids,
    write_checkpoint,
)

PATCH = 14

#: LLaVA looks at squares of this many pixels, whatever the picture's size.
SQUARE = 56

#: Qwen2-VL makes one embedding of this many pixels in each direction, and at most so many.
MERGED = 2 * PATCH
MOST_EMBEDDINGS = 64

_SIZE = 32
_LAYERS = 2
_HEADS = 2
_INNER = 64
_COLOURS = 3
_FRAMES = 2

_NORMALISATION = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
    "resample": 3,
    "rescale_factor": 1 / 255,
}

LLAVA_TOKENS = ("<image>",)
QWEN2_VL_TOKENS = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def llava(folder: Path) -> Path:
    """Write a LLaVA into a folder: 16 placeholders for an image of any size.

    Text model and tokenizer are those of the tiny Llama with the token ``<image>``;
    the tower is a CLIP of two layers on 56 x 56 pixels.
    """
    (image,) = token_ids(LLAVA_TOKENS).values()
    patches = (SQUARE // PATCH) ** 2
    draws = Draws(91)
    _clip(draws, "vision_tower.vision_model", patches)
    draws.linear("multi_modal_projector.linear_1", TEXT_SIZE, _SIZE)
    draws.linear("multi_modal_projector.linear_2", TEXT_SIZE, TEXT_SIZE)
    config = {
        "architectures": ["LlavaForConditionalGeneration"],
        "model_type": "llava",
        "torch_dtype": "float32",
        "image_token_index": image,
        "image_seq_length": patches,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": True,
        "vision_feature_layer": -2,
        "vision_feature_select_strategy": "default",
        "tie_word_embeddings": False,
        "text_config": text_config("LlamaForCausalLM", "llama", LLAVA_TOKENS),
        "vision_config": {
            "model_type": "clip_vision_model",
            "hidden_size": _SIZE,
            "intermediate_size": _INNER,
            "num_hidden_layers": _LAYERS,
            "num_attention_heads": _HEADS,
            "image_size": SQUARE,
            "patch_size": PATCH,
            "projection_dim": _SIZE,
        },
    }
    images = {
        **_NORMALISATION,
        "image_processor_type": "CLIPImageProcessor",
        "do_center_crop": True,
        "crop_size": {"height": SQUARE, "width": SQUARE},
        "size": {"shortest_edge": SQUARE},
    }
    processor = {
        "processor_class": "LlavaProcessor",
        "image_token": LLAVA_TOKENS[0],
        "patch_size": PATCH,
        "num_additional_image_tokens": 1,
        "vision_feature_select_strategy": "default",
        "image_processor": images,
    }
    return write_checkpoint(
        folder,
        config=config,
        weights=text_weights("language_model.", LLAVA_TOKENS) | draws.weights,
        extra=LLAVA_TOKENS,
        items={"image": LLAVA_TOKENS[0]},
        documents={"processor_config.json": processor, "preprocessor_config.json": images},
    )


def qwen2_vl(folder: Path) -> Path:
    """Write a Qwen2-VL into a folder: a placeholder for each 28 x 28 pixels, 1 to 64 in an image.

    Text model and tokenizer are those of the tiny Llama with tokens for images and videos.
    """
    ids = token_ids(QWEN2_VL_TOKENS)
    start, end, pad, image, video = ids.values()
    draws = Draws(92)
    _qwen2_vision(draws, "visual")
    text = text_config("Qwen2ForCausalLM", "qwen2_vl_text", QWEN2_VL_TOKENS)
    text["rope_parameters"] = {
        "rope_type": "default",
        "type": "mrope",
        "mrope_section": [4, 6, 6],
        "rope_theta": text.pop("rope_theta"),
    }
    config = {
        "architectures": ["Qwen2VLForConditionalGeneration"],
        "model_type": "qwen2_vl",
        "torch_dtype": "float32",
        "vision_start_token_id": start,
        "vision_end_token_id": end,
        "vision_token_id": pad,
        "image_token_id": image,
        "video_token_id": video,
        "tie_word_embeddings": False,
        "text_config": text,
        "vision_config": {
            "model_type": "qwen2_vl_vision",
            "depth": _LAYERS,
            "embed_dim": _SIZE,
            "hidden_size": TEXT_SIZE,
            "num_heads": _HEADS,
            "mlp_ratio": _INNER // _SIZE,
            "in_channels": _COLOURS,
            "patch_size": PATCH,
            "spatial_merge_size": MERGED // PATCH,
            "temporal_patch_size": _FRAMES,
        },
    }
    images: dict[str, Any] = {
        **_NORMALISATION,
        "image_processor_type": "Qwen2VLImageProcessor",
        "patch_size": PATCH,
        "merge_size": MERGED // PATCH,
        "temporal_patch_size": _FRAMES,
        "size": {"shortest_edge": MERGED**2, "longest_edge": MERGED**2 * MOST_EMBEDDINGS},
    }
    videos = {
        **{key: value for key, value in images.items() if key != "image_processor_type"},
        "video_processor_type": "Qwen2VLVideoProcessor",
        "do_sample_frames": False,
    }
    processor = {
        "processor_class": "Qwen2VLProcessor",
        "image_processor": images,
        "video_processor": videos,
    }
    return write_checkpoint(
        folder,
        config=config,
        weights=text_weights("", QWEN2_VL_TOKENS, attention_bias=True) | draws.weights,
        extra=QWEN2_VL_TOKENS,
        items={
            kind: f"{QWEN2_VL_TOKENS[0]}{token}{QWEN2_VL_TOKENS[1]}"
            for kind, token in (("image", QWEN2_VL_TOKENS[3]), ("video", QWEN2_VL_TOKENS[4]))
        },
        documents={
            "processor_config.json": processor,
            "preprocessor_config.json": images,
            "video_preprocessor_config.json": videos,
        },
    )


def _clip(draws: Draws, name: str, patches: int) -> None:
    draws.draw(f"{name}.embeddings.class_embedding", _SIZE, scale=1.0)
    draws.draw(f"{name}.embeddings.patch_embedding.weight", _SIZE, _COLOURS, PATCH, PATCH)
    draws.draw(f"{name}.embeddings.position_embedding.weight", patches + 1, _SIZE, scale=0.5)
    draws.norm(f"{name}.pre_layrnorm", _SIZE)
    for layer in range(_LAYERS):
        block = f"{name}.encoder.layers.{layer}"
        for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
            draws.linear(f"{block}.self_attn.{part}", _SIZE, _SIZE)
        draws.norm(f"{block}.layer_norm1", _SIZE)
        draws.norm(f"{block}.layer_norm2", _SIZE)
        draws.linear(f"{block}.mlp.fc1", _INNER, _SIZE)
        draws.linear(f"{block}.mlp.fc2", _SIZE, _INNER)
    draws.norm(f"{name}.post_layernorm", _SIZE)


def _qwen2_vision(draws: Draws, name: str) -> None:
    draws.draw(f"{name}.patch_embed.proj.weight", _SIZE, _COLOURS, _FRAMES, PATCH, PATCH)
    for layer in range(_LAYERS):
        block = f"{name}.blocks.{layer}"
        draws.norm(f"{block}.norm1", _SIZE)
        draws.norm(f"{block}.norm2", _SIZE)
        draws.linear(f"{block}.attn.qkv", 3 * _SIZE, _SIZE)
        draws.linear(f"{block}.attn.proj", _SIZE, _SIZE)
        draws.linear(f"{block}.mlp.fc1", _INNER, _SIZE)
        draws.linear(f"{block}.mlp.fc2", _SIZE, _INNER)
    merged = _SIZE * (MERGED // PATCH) ** 2
    draws.norm(f"{name}.merger.ln_q", _SIZE)
    draws.linear(f"{name}.merger.mlp.0", merged, merged)
    draws.linear(f"{name}.merger.mlp.2", TEXT_SIZE, merged)
