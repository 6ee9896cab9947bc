# SPDX-License-Identifier: Apache-2.0
"""A model of every modality, deployed, with an encoder that can be looked through."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fixtures.media import samples
from reference_plugins.modality import (
    Attachment,
    AudioPlugin,
    DynamicResolution,
    FixedResolution,
    ImagePlugin,
    ItemEmbeddings,
    LogMel,
    MultiModalConfig,
    MultiModalProcessor,
    MultiModalRegistry,
    RawAudio,
    Request,
    SampledFrames,
    VideoPlugin,
)
from reference_plugins.modality.point_clouds import PointCloudPlugin, PointGroups

if TYPE_CHECKING:
    from reference_plugins.modality import ModelInputs

IMAGE, VIDEO, AUDIO, CLOUD = PLACEHOLDERS = (1001, 1002, 1003, 1004)
MODALITIES = ("image", "video", "audio", "point_cloud")
HIDDEN_SIZE = 4


class EverythingModel:
    """Takes two images, and one or two of everything else."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare all four modalities."""
        return MultiModalConfig(
            MODALITIES,
            recipes={
                "image": DynamicResolution(),
                "video": SampledFrames(4, DynamicResolution(max_pixels=56 * 56), merge=2),
                "audio": LogMel(),
                "point_cloud": PointGroups(),
            },
            placeholder_tokens=dict(zip(MODALITIES, PLACEHOLDERS, strict=True)),
            max_image_per_prompt=2,
            max_video_per_prompt=2,
            max_audio_per_prompt=2,
        )


class LlavaModel:
    """Takes two images and nothing else."""

    @classmethod
    def get_multimodal_config(cls) -> MultiModalConfig:
        """Declare images of one resolution."""
        return MultiModalConfig(
            ["image"],
            recipes={"image": FixedResolution()},
            placeholder_tokens={"image": IMAGE},
            max_image_per_prompt=2,
        )


def registry() -> MultiModalRegistry:
    """Return a registry of all modalities and both models."""
    registry = MultiModalRegistry()
    for plugin in (ImagePlugin(), VideoPlugin(), AudioPlugin(), PointCloudPlugin()):
        registry.register_plugin(plugin)
    registry.register_model("everything", EverythingModel)
    registry.register_model("llava", LlavaModel)
    return registry


def processor(model: str = "everything") -> MultiModalProcessor:
    """Return the pipeline of a model."""
    known = registry()
    return MultiModalProcessor(known, known.get_model_config(model, max_model_len=100_000))


def items() -> list[Attachment]:
    """Return items of all modalities, no two alike."""
    return [
        Attachment("image", samples.image(30, 150)),
        Attachment("image", samples.image(200, 90, "JPEG", seed=1)),
        Attachment("video", samples.animation(9)),
        Attachment("video", samples.animation(3, 60, 40, "WEBP")),
        Attachment("audio", RawAudio(samples.tone(5000), 8000)),
        Attachment("audio", (samples.tone(30_000, 44_100), 44_100)),
        Attachment("point_cloud", samples.ply(np.random.default_rng(1).normal(size=(100, 3)))),
    ]


def request(*attachments: Attachment) -> Request:
    """Return a prompt with text around every item."""
    tokens = [7]
    for attachment in attachments:
        tokens += [PLACEHOLDERS[MODALITIES.index(attachment.modality)], 8, 9]
    return Request(tuple(tokens), attachments)


def encode(inputs: ModelInputs) -> list[ItemEmbeddings]:
    """Return embeddings as an encoder makes them, from the arrays and nothing else.

    Row r of an item is its first value and r, so that rows of different items differ.
    """
    embeddings = []
    for item, place in zip(inputs.items, inputs.placeholders, strict=True):
        first = next(iter(item.features.values())).flat[0]
        rows = np.full((place.length, HIDDEN_SIZE), first, dtype=np.float32)
        rows[:, 1] = np.arange(place.length)
        embeddings.append(ItemEmbeddings(item.modality, item.index, rows))
    return embeddings
