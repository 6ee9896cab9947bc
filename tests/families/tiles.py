# SPDX-License-Identifier: Apache-2.0
"""Models that cut a picture into tiles, and look at all of it as well."""

from __future__ import annotations

from typing import Any

from families.making import (
    HIDDEN,
    IMAGE,
    IMAGE_AND_VIDEO,
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

_GRID = [[56, 112], [112, 56], [112, 112]]
_CROP = {"do_center_crop": True, "crop_size": SIDES, "size": {"shortest_edge": SQUARE}}
_SELECTED = {"vision_feature_layer": -2, "vision_feature_select_strategy": "default"}


def llava_next() -> Family:
    """LLaVA-NeXT."""
    return Family(
        "llava-next",
        "LlavaNextForConditionalGeneration",
        {
            "model_type": "llava_next",
            "image_token_index": ids(IMAGE)["<image>"],
            "image_seq_length": 16,
            "image_grid_pinpoints": _GRID,
            **_SELECTED,
            "text_config": text(IMAGE),
            "vision_config": tower(projection_dim=SIZE),
        },
        IMAGE,
        processing(
            "LlavaNextProcessor",
            image_processor=images("LlavaNextImageProcessor", image_grid_pinpoints=_GRID, **_CROP),
            image_token="<image>",
            patch_size=PATCH,
            num_additional_image_tokens=1,
            vision_feature_select_strategy="default",
        ),
        {"image": "<image>"},
    )


def llava_next_video() -> Family:
    """LLaVA-NeXT-Video, of which vLLM serves films; its pooler wants smaller patches."""
    patch = PATCH // 2
    return Family(
        "llava-next-video",
        "LlavaNextVideoForConditionalGeneration",
        {
            "model_type": "llava_next_video",
            "image_token_index": ids(IMAGE_AND_VIDEO)["<image>"],
            "video_token_index": ids(IMAGE_AND_VIDEO)["<video>"],
            "image_seq_length": 64,
            "video_seq_length": 16,
            "image_grid_pinpoints": _GRID,
            **_SELECTED,
            "spatial_pool_mode": "average",
            "spatial_pool_stride": 2,
            "text_config": text(IMAGE_AND_VIDEO),
            "vision_config": tower(projection_dim=SIZE, patch_size=patch),
        },
        IMAGE_AND_VIDEO,
        processing(
            "LlavaNextVideoProcessor",
            image_processor=images("LlavaNextImageProcessor", image_grid_pinpoints=_GRID, **_CROP),
            video_processor=videos("LlavaNextVideoVideoProcessor", **_CROP),
            image_token="<image>",
            video_token="<video>",
            patch_size=patch,
            num_additional_image_tokens=1,
            vision_feature_select_strategy="default",
        ),
        {"image": "<image>", "video": "<video>"},
    )


def llava_onevision() -> Family:
    """LLaVA-OneVision."""
    return Family(
        "llava-onevision",
        "LlavaOnevisionForConditionalGeneration",
        {
            "model_type": "llava_onevision",
            "image_token_index": ids(IMAGE_AND_VIDEO)["<image>"],
            "video_token_index": ids(IMAGE_AND_VIDEO)["<video>"],
            "image_grid_pinpoints": _GRID,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "full",
            "vision_aspect_ratio": "anyres_max_9",
            "text_config": text(IMAGE_AND_VIDEO, "Qwen2", "qwen2"),
            "vision_config": siglip(),
        },
        IMAGE_AND_VIDEO,
        processing(
            "LlavaOnevisionProcessor",
            image_processor=images(
                "LlavaOnevisionImageProcessor", image_grid_pinpoints=_GRID, size=SIDES
            ),
            video_processor=videos("LlavaOnevisionVideoProcessor", size=SIDES),
            image_token="<image>",
            video_token="<video>",
            num_image_tokens=16,
            vision_feature_select_strategy="full",
            vision_aspect_ratio="anyres_max_9",
        ),
        {"image": "<image>", "video": "<video>"},
    )


def idefics3() -> Family:
    """Idefics3."""
    return _idefics3("Idefics3", ("torchvision",))


def smolvlm() -> Family:
    """SmolVLM, an Idefics3 whose processor writes numbers out."""
    films = videos(
        "SmolVLMVideoProcessor",
        size={"longest_edge": SQUARE},
        max_image_size={"longest_edge": SQUARE},
        video_sampling={"fps": 1, "max_frames": 8, "video_size": {"longest_edge": SQUARE}},
    )
    return _idefics3("SmolVLM", ("num2words", "torchvision"), films)


def _idefics3(
    prefix: str, requires: tuple[str, ...], films: dict[str, Any] | None = None
) -> Family:
    kind = prefix.lower()
    rows = tuple(f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7))
    fake, turn, whole = "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"
    tokens = ("<image>", fake, turn, whole, *rows)
    pixels = images(
        f"{prefix}ImageProcessor",
        do_image_splitting=True,
        do_pad=True,
        size={"longest_edge": 2 * SQUARE},
        max_image_size={"longest_edge": SQUARE},
        return_row_col_info=True,
    )
    more = {"video_processor": films} if films else {}
    return Family(
        kind,
        f"{prefix}ForConditionalGeneration",
        {
            "model_type": kind,
            "image_token_id": ids(tokens)["<image>"],
            "scale_factor": 2,
            "pad_token_id": 2,
            "text_config": text(tokens),
            "vision_config": tower(f"{kind}_vision"),
        },
        tokens,
        processing(f"{prefix}Processor", image_processor=pixels, image_seq_len=4, **more),
        {"image": "<image>"},
        {
            "image_token": "<image>",
            "fake_image_token": fake,
            "global_image_token": whole,
            "end_of_utterance_token": turn,
        },
        requires,
    )


def internvl() -> Family:
    """InternVL as transformers has it."""
    tokens = ("<IMG_CONTEXT>", "<img>", "</img>", "<video>")
    return Family(
        "internvl",
        "InternVLForConditionalGeneration",
        {
            "model_type": "internvl",
            "image_token_id": ids(tokens)["<IMG_CONTEXT>"],
            "image_seq_length": 4,
            "downsample_ratio": 0.5,
            "vision_feature_layer": -1,
            "vision_feature_select_strategy": "default",
            "projector_hidden_act": "gelu",
            "text_config": text(tokens, "Qwen2", "qwen2"),
            "vision_config": tower(
                "internvl_vision",
                image_size=[SQUARE, SQUARE],
                patch_size=[PATCH, PATCH],
                norm_type="layer_norm",
                hidden_act="gelu",
                attention_bias=True,
                use_absolute_position_embeddings=True,
            ),
        },
        tokens,
        processing(
            "InternVLProcessor",
            image_processor=images(
                "GotOcr2ImageProcessor", size=SIDES, crop_to_patches=True, max_patches=4
            ),
            video_processor=videos("InternVLVideoProcessor", size=SIDES),
            image_seq_length=4,
        ),
        {"image": "<IMG_CONTEXT>", "video": "<video>"},
        {
            "context_image_token": "<IMG_CONTEXT>",
            "start_image_token": "<img>",
            "end_image_token": "</img>",
            "video_token": "<video>",
        },
    )


def cohere2_vision() -> Family:
    """Command A Vision; its processor calls ``patch_size`` the embeddings of a tile's side."""
    start, end, line, patch = tokens = (
        "<|START_OF_IMG|>",
        "<|END_OF_IMG|>",
        "<|IMG_LINE_BREAK|>",
        "<|IMG_PATCH|>",
    )
    return Family(
        "cohere2-vision",
        "Cohere2VisionForConditionalGeneration",
        {
            "model_type": "cohere2_vision",
            "image_token_id": ids(tokens)[patch],
            "downsample_factor": 2,
            "alignment_intermediate_size": HIDDEN,
            "text_config": text(
                tokens,
                "Cohere2",
                "cohere2",
                sliding_window=512,
                layer_norm_eps=1e-5,
                logit_scale=1.0,
                layer_types=["sliding_attention", "full_attention"],
            ),
            "vision_config": siglip(),
        },
        tokens,
        processing(
            "Cohere2VisionProcessor",
            image_processor=images(
                "Cohere2VisionImageProcessorFast",
                crop_to_patches=True,
                max_patches=4,
                patch_size=2,
                size=SIDES,
            ),
        ),
        {"image": patch},
        {
            "image_token": patch,
            "boi_token": start,
            "eoi_token": end,
            "img_line_break_token": line,
        },
    )


def lfm2_vl() -> Family:
    """LFM2-VL."""
    rows = tuple(f"<|img_row_{row}_col_{column}|>" for row in range(1, 5) for column in range(1, 5))
    tokens = ("<image>", "<|image_start|>", "<|image_end|>", "<|img_thumbnail|>", *rows)
    return Family(
        "lfm2-vl",
        "Lfm2VlForConditionalGeneration",
        {
            "model_type": "lfm2_vl",
            "image_token_id": ids(tokens)["<image>"],
            "downsample_factor": 2,
            "projector_hidden_act": "gelu",
            "projector_hidden_size": HIDDEN,
            "projector_use_layernorm": True,
            "projector_bias": True,
            "text_config": text(
                tokens,
                "Lfm2",
                "lfm2",
                layer_types=["full_attention", "conv"],
                conv_L_cache=3,
                conv_bias=False,
                conv_dim=HIDDEN,
                conv_dim_out=HIDDEN,
                block_dim=HIDDEN,
                block_ff_dim=2 * HIDDEN,
                block_multiple_of=16,
                block_auto_adjust_ff_dim=False,
                norm_eps=1e-5,
            ),
            "vision_config": tower("siglip2_vision_model", num_patches=64, vision_use_head=False),
        },
        tokens,
        processing(
            "Lfm2VlProcessor",
            image_processor=images(
                "Lfm2VlImageProcessor",
                downsample_factor=2,
                do_image_splitting=True,
                min_tiles=2,
                max_tiles=4,
                use_thumbnail=True,
                min_image_tokens=4,
                max_image_tokens=16,
                encoder_patch_size=PATCH,
                tile_size=2 * SQUARE,
                max_pixels_tolerance=2.0,
                do_pad=True,
                max_num_patches=64,
                return_row_col_info=True,
                size={"height": 2 * SQUARE, "width": 2 * SQUARE},
            ),
        ),
        {"image": "<image>"},
        {
            "image_token": "<image>",
            "image_start_token": "<|image_start|>",
            "image_end_token": "<|image_end|>",
            "image_thumbnail": "<|img_thumbnail|>",
        },
    )


def deepseek_vl2() -> Family:
    """DeepSeek-VL2, which cuts pictures only where there are one or two."""
    sizes = [[56, 56], [56, 112], [112, 56]]
    return Family(
        "deepseek-vl2",
        "DeepseekVLV2ForCausalLM",
        {
            "model_type": "deepseek_vl_v2",
            "candidate_resolutions": sizes,
            "tile_tag": "2D",
            "global_view_pos": "head",
            "language_config": text(
                IMAGE,
                "Deepseek",
                "deepseek_v2",
                use_mla=False,
                n_routed_experts=2,
                first_k_dense_replace=2,
                moe_intermediate_size=32,
                topk_method="greedy",
            ),
            "vision_config": {
                "model_type": "vision",
                "image_size": SQUARE,
                "patch_size": PATCH,
                "width": SIZE,
                "layers": 2,
                "heads": 2,
                "mlp_ratio": 2.0,
            },
            "projector_config": {
                "model_type": "mlp_projector",
                "projector_type": "downsample_mlp_gelu",
                "input_dim": SIZE,
                "n_embed": HIDDEN,
                "depth": 2,
                "mlp_ratio": 1,
                "downsample_ratio": 2,
            },
        },
        IMAGE,
        processing(
            "DeepseekVLV2Processor",
            candidate_resolutions=sizes,
            patch_size=PATCH,
            downsample_ratio=2,
            image_mean=[0.5] * 3,
            image_std=[0.5] * 3,
            normalize=True,
            image_token="<image>",
            pad_token="<pad>",
            add_special_token=False,
            sft_format="deepseek",
            mask_prompt=False,
            ignore_id=-100,
        ),
        {"image": "<image>"},
        requires=("timm", "torchvision"),
    )


FAMILIES = (
    llava_next(),
    llava_next_video(),
    llava_onevision(),
    idefics3(),
    smolvlm(),
    internvl(),
    cohere2_vision(),
    lfm2_vl(),
    deepseek_vl2(),
)
