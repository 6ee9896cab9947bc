# SPDX-License-Identifier: Apache-2.0
"""What folders of vLLM's own multi-modal models are made of: parts that many families share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.checkpoints import text_config, token_ids, write_checkpoint

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: Hidden sizes of the text model and of towers, pixels of a patch, and of the square of a tower.
HIDDEN, SIZE, PATCH, SQUARE = 64, 32, 14, 56

#: A square as image processors of transformers have it.
SIDES = {"height": SQUARE, "width": SQUARE}

IMAGE = ("<image>",)
IMAGE_AND_VIDEO = ("<image>", "<video>")

#: What image processors of transformers have in common.
PIXELS: Mapping[str, Any] = {
    "do_convert_rgb": True,
    "do_normalize": True,
    "do_rescale": True,
    "do_resize": True,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "resample": 3,
    "rescale_factor": 1 / 255,
}


@attrs.frozen
class Family:
    """Models of one kind, by the folder of a tiny one."""

    name: str
    architecture: str  #: as ``config.json`` names the class
    config: Mapping[str, Any]  #: the rest of ``config.json``
    tokens: tuple[str, ...]  #: that come after those of the tiny Llama
    documents: Mapping[str, Any]  #: more files, by name
    items: Mapping[str, str] = attrs.field(factory=dict)  #: what stands for them in a chat
    named: Mapping[str, str] = attrs.field(factory=dict)  #: tokens that are attributes
    requires: tuple[str, ...] = ("torchvision",)  #: packages that the class or its processor needs

    def write(self, folder: Path) -> Path:
        """Write it into a folder: all but weights, which are made up."""
        return write_checkpoint(
            folder,
            config={
                "architectures": [self.architecture],
                "torch_dtype": "float32",
                **self.config,
            },
            weights={},
            extra=self.tokens,
            items=self.items,
            documents=self.documents,
            named=self.named,
        )


def text(
    tokens: tuple[str, ...], architecture: str = "Llama", kind: str = "llama", **more: object
) -> dict[str, Any]:
    """Return the configuration of the tiny Llama, as a model of another kind."""
    return {**text_config(f"{architecture}ForCausalLM", kind, tokens), **more}


def tower(kind: str = "clip_vision_model", **more: object) -> dict[str, Any]:
    """Return the configuration of a small vision tower."""
    return {
        "model_type": kind,
        "hidden_size": SIZE,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": SQUARE,
        "patch_size": PATCH,
        **more,
    }


def siglip(**more: object) -> dict[str, Any]:
    """Return the configuration of a small SigLIP without its head."""
    return tower("siglip_vision_model", vision_use_head=False, **more)


def images(kind: str, **more: object) -> dict[str, Any]:
    """Return the configuration of an image processor."""
    return {**PIXELS, "image_processor_type": kind, **more}


def videos(kind: str, **more: object) -> dict[str, Any]:
    """Return the configuration of a video processor, which keeps all frames."""
    return {**PIXELS, "video_processor_type": kind, "do_sample_frames": False, **more}


def processing(processor: str, **parts: object) -> dict[str, Any]:
    """Return the files of a processor and of its parts, as releases old and new read them."""
    files: dict[str, Any] = {"processor_config.json": {"processor_class": processor, **parts}}
    pixels = parts.get("image_processor", parts.get("feature_extractor"))
    if pixels is not None:
        files["preprocessor_config.json"] = pixels
    if "video_processor" in parts:
        files["video_preprocessor_config.json"] = parts["video_processor"]
    return files


def ids(tokens: tuple[str, ...]) -> dict[str, int]:
    """Return the ids of tokens that come after the tiny Llama's."""
    return token_ids(tokens)
