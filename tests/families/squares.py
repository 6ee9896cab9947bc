# SPDX-License-Identifier: Apache-2.0
"""Models that look at one square, and those that take a picture's own grid of patches."""

from __future__ import annotations

from typing import Any

from families.making import (
    HIDDEN,
    IMAGE,
    PATCH,
    SIDES,
    SIZE,
    SQUARE,
    Family,
    ids,
    images,
    processing,
    siglip,
    text,
    tower,
    videos,
)

#: Line breaks, which processors of the Gemma family look for by themselves.
_LINES = ("\n", "\n\n", "\n\n\n", "\n\n\n\n")
_PIXTRAL = ("[IMG]", "[IMG_BREAK]", "[IMG_END]")
_QWEN = (
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
_QWEN_ITEMS = {
    "image": "<|vision_start|><|image_pad|><|vision_end|>",
    "video": "<|vision_start|><|video_pad|><|vision_end|>",
}


def paligemma() -> Family:
    """PaliGemma, whose placeholders are inserted before the text; it knows no chats."""
    tokens = (*IMAGE, *_LINES)
    return Family(
        "paligemma",
        "PaliGemmaForConditionalGeneration",
        {
            "model_type": "paligemma",
            "image_token_index": ids(tokens)["<image>"],
            "projection_dim": HIDDEN,
            "hidden_size": HIDDEN,
            "text_config": text(
                tokens,
                "Gemma",
                "gemma",
                hidden_activation="gelu_pytorch_tanh",
                num_image_tokens=16,
                tie_word_embeddings=True,
            ),
            "vision_config": siglip(projection_dim=HIDDEN, num_image_tokens=16),
        },
        tokens,
        processing(
            "PaliGemmaProcessor",
            image_processor=images("SiglipImageProcessor", size=SIDES, image_seq_length=16),
        ),
    )


def gemma3() -> Family:
    """Gemma 3."""
    start, end, soft = "<start_of_image>", "<end_of_image>", "<image_soft_token>"
    tokens = (start, end, soft, *_LINES)
    return Family(
        "gemma3",
        "Gemma3ForConditionalGeneration",
        {
            "model_type": "gemma3",
            "boi_token_index": ids(tokens)[start],
            "eoi_token_index": ids(tokens)[end],
            "image_token_index": ids(tokens)[soft],
            "mm_tokens_per_image": 4,
            "text_config": text(
                tokens,
                "Gemma3",
                "gemma3_text",
                sliding_window=512,
                query_pre_attn_scalar=32,
                hidden_activation="gelu_pytorch_tanh",
                tie_word_embeddings=True,
                layer_types=["sliding_attention", "full_attention"],
            ),
            "vision_config": siglip(),
        },
        tokens,
        processing(
            "Gemma3Processor",
            image_processor=images("Gemma3ImageProcessor", size=SIDES),
            image_seq_length=4,
        ),
        {"image": start},
        {"boi_token": start, "eoi_token": end, "image_token": soft},
    )


def blip2() -> Family:
    """BLIP-2, whose placeholders are inserted before the text."""
    opt = {
        "model_type": "opt",
        "architectures": ["OPTForCausalLM"],
        "vocab_size": text(IMAGE)["vocab_size"],
        "hidden_size": HIDDEN,
        "ffn_dim": 2 * HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "max_position_embeddings": 4096,
        "word_embed_proj_dim": HIDDEN,
    }
    former = {
        "model_type": "blip_2_qformer",
        "vocab_size": text(IMAGE)["vocab_size"],
        "hidden_size": SIZE,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "encoder_hidden_size": SIZE,
        "cross_attention_frequency": 2,
    }
    return Family(
        "blip-2",
        "Blip2ForConditionalGeneration",
        {
            "model_type": "blip-2",
            "image_token_index": ids(IMAGE)["<image>"],
            "num_query_tokens": 4,
            "use_decoder_only_language_model": True,
            "text_config": opt,
            "vision_config": tower("blip_2_vision_model", hidden_act="gelu", qkv_bias=True),
            "qformer_config": former,
        },
        IMAGE,
        processing(
            "Blip2Processor",
            image_processor=images("BlipImageProcessor", size=SIDES),
            num_query_tokens=4,
        ),
        requires=(),
    )


def pixtral() -> Family:
    """Pixtral as transformers has it, which vLLM serves as a LLaVA."""
    config = {
        "model_type": "llava",
        "vision_feature_layer": -1,
        "vision_feature_select_strategy": "full",
        "image_seq_length": 1,
        "projector_hidden_act": "gelu",
    }
    return _pixtral("pixtral", "LlavaForConditionalGeneration", config)


def mistral3() -> Family:
    """Mistral Small 3.1."""
    config = {
        "model_type": "mistral3",
        "vision_feature_layer": -1,
        "spatial_merge_size": 2,
        "projector_hidden_act": "gelu",
        "multimodal_projector_bias": False,
    }
    return _pixtral("mistral3", "Mistral3ForConditionalGeneration", config)


def lightonocr() -> Family:
    """LightOnOCR, a Mistral 3 around a Qwen 3."""
    config = {"model_type": "mistral3", "spatial_merge_size": 2, "vision_feature_layer": -1}
    tokens = ("<|image_pad|>", "<|vision_pad|>", "<|vision_end|>")
    language = text(tokens, "Qwen3", "qwen3")
    name = "LightOnOCRForConditionalGeneration"
    return _pixtral("lightonocr", name, config, tokens, language)


def _pixtral(
    name: str,
    architecture: str,
    config: dict[str, Any],
    tokens: tuple[str, ...] = _PIXTRAL,
    language: dict[str, Any] | None = None,
) -> Family:
    item, line, end = tokens
    return Family(
        name,
        architecture,
        {
            **config,
            "image_token_index": ids(tokens)[item],
            "text_config": language or text(tokens, "Mistral", "mistral"),
            "vision_config": tower(
                "pixtral",
                image_size=2 * SQUARE,
                head_dim=16,
                rope_theta=10000.0,
                hidden_act="silu",
                num_channels=3,
            ),
        },
        tokens,
        processing(
            "PixtralProcessor",
            image_processor=images(
                "PixtralImageProcessor",
                patch_size={"height": PATCH, "width": PATCH},
                size={"longest_edge": 2 * SQUARE},
            ),
            patch_size=PATCH,
            spatial_merge_size=config.get("spatial_merge_size", 1),
            image_token=item,
            image_break_token=line,
            image_end_token=end,
        ),
        {"image": item},
    )


def qwen25_vl() -> Family:
    """Qwen2.5-VL."""
    return Family(
        "qwen2.5-vl",
        "Qwen2_5_VLForConditionalGeneration",
        {
            "model_type": "qwen2_5_vl",
            **_qwen_ids(),
            "text_config": _turned(_QWEN, "Qwen2", "qwen2_5_vl_text"),
            "vision_config": _merging(
                "qwen2_5_vl",
                PATCH,
                window_size=SQUARE,
                fullatt_block_indexes=[1],
                tokens_per_second=2,
                hidden_act="silu",
            ),
        },
        _QWEN,
        _merged("Qwen2_5_VLProcessor", PATCH, "Qwen2VLImageProcessor", "Qwen2VLVideoProcessor"),
        _QWEN_ITEMS,
    )


def qwen3_vl() -> Family:
    """Qwen3-VL."""
    patch = 16
    return Family(
        "qwen3-vl",
        "Qwen3VLForConditionalGeneration",
        {
            "model_type": "qwen3_vl",
            **_qwen_ids(),
            "text_config": _turned(_QWEN, "Qwen3", "qwen3_vl_text", mrope_interleaved=True),
            "vision_config": _merging(
                "qwen3_vl",
                patch,
                num_position_embeddings=64,
                deepstack_visual_indexes=[0, 1],
                hidden_act="gelu_pytorch_tanh",
            ),
        },
        _QWEN,
        _merged("Qwen3VLProcessor", patch, "Qwen2VLImageProcessor", "Qwen3VLVideoProcessor"),
        _QWEN_ITEMS,
    )


def glm41v() -> Family:
    """GLM-4.1V; as of published ones, its largest picture is longer than its thinnest."""
    image, video, *_ = tokens = (
        "<|image|>",
        "<|video|>",
        "<|begin_of_image|>",
        "<|end_of_image|>",
        "<|begin_of_video|>",
        "<|end_of_video|>",
    )
    numbers = ids(tokens)
    return Family(
        "glm-4.1v",
        "Glm4vForConditionalGeneration",
        {
            "model_type": "glm4v",
            "image_token_id": numbers[image],
            "video_token_id": numbers[video],
            "image_start_token_id": numbers["<|begin_of_image|>"],
            "image_end_token_id": numbers["<|end_of_image|>"],
            "video_start_token_id": numbers["<|begin_of_video|>"],
            "video_end_token_id": numbers["<|end_of_video|>"],
            "text_config": _turned(tokens, "Glm4", "glm4v_text", partial_rotary_factor=1.0),
            "vision_config": _merging(
                "glm4v",
                PATCH,
                image_size=2 * SQUARE,
                attention_bias=False,
                hidden_act="silu",
                rms_norm_eps=1e-5,
            ),
        },
        tokens,
        _merged("Glm4vProcessor", PATCH, "Glm4vImageProcessor", "Glm4vVideoProcessor", most=1024),
        {
            "image": f"<|begin_of_image|>{image}<|end_of_image|>",
            "video": f"<|begin_of_video|>{video}<|end_of_video|>",
        },
        {"image_token": image, "video_token": video},
    )


def _qwen_ids() -> dict[str, int]:
    names = ("vision_start", "vision_end", "vision", "image", "video")
    return {
        f"{name}_token_id": number for name, number in zip(names, ids(_QWEN).values(), strict=True)
    }


def _turned(
    tokens: tuple[str, ...], architecture: str, kind: str, **rope: object
) -> dict[str, Any]:
    """Return a text model whose positions have three dimensions."""
    found = text(tokens, architecture, kind)
    found["rope_parameters"] = {
        "rope_type": "default",
        "type": "mrope",
        "mrope_section": [4, 6, 6],
        "rope_theta": found.pop("rope_theta"),
        **rope,
    }
    return found


def _merging(kind: str, patch: int, **more: object) -> dict[str, Any]:
    """Return a tower that makes one embedding of two by two patches."""
    return {
        "model_type": kind,
        "depth": 2,
        "hidden_size": SIZE,
        "intermediate_size": HIDDEN,
        "num_heads": 2,
        "in_channels": 3,
        "patch_size": patch,
        "out_hidden_size": HIDDEN,
        "spatial_merge_size": 2,
        "temporal_patch_size": 2,
        **more,
    }


def _merged(processor: str, patch: int, image: str, video: str, most: int = 64) -> dict[str, Any]:
    one = (2 * patch) ** 2
    sizes = {
        "patch_size": patch,
        "merge_size": 2,
        "temporal_patch_size": 2,
        "size": {"shortest_edge": one, "longest_edge": most * one},
    }
    return processing(
        processor,
        image_processor=images(image, **sizes),
        video_processor=videos(video, **sizes),
    )


FAMILIES = (
    paligemma(),
    gemma3(),
    blip2(),
    pixtral(),
    mistral3(),
    lightonocr(),
    qwen25_vl(),
    qwen3_vl(),
    glm41v(),
)
