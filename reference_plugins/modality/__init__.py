# SPDX-License-Identifier: Apache-2.0
"""Modalities as plugins: what a request may hold besides text, and what models make of it.

    errors  <- arrays, fingerprints, estimators, addresses  <- fetching  <- sources
        <- interface  <- registry  <- placeholders  <- processor  <- messages
        <- pixels, resolutions, spectrograms, video_files  <- images, audio, video, point_clouds

The first two lines are the core, which names no modality; the third is modalities, each of which
could be taken away or joined by another. vLLM is not imported anywhere here.
"""

from __future__ import annotations

from reference_plugins.modality.audio import AudioLimits, AudioPlugin, RawAudio
from reference_plugins.modality.errors import (
    EstimateError,
    InputError,
    MissingLibraryError,
    PlaceholderMismatch,
    PluginError,
)
from reference_plugins.modality.fetching import Fetcher
from reference_plugins.modality.images import ImagePlugin, RawImage
from reference_plugins.modality.interface import (
    ModelConfig,
    MultiModalConfig,
    MultiModalPlugin,
)
from reference_plugins.modality.messages import request_from_messages
from reference_plugins.modality.pixels import ImageLimits
from reference_plugins.modality.placeholders import (
    ItemEmbeddings,
    PlaceholderRange,
    replace,
)
from reference_plugins.modality.processor import (
    Attachment,
    ModelInputs,
    MultiModalProcessor,
    Request,
)
from reference_plugins.modality.registry import MultiModalRegistry
from reference_plugins.modality.resolutions import (
    DynamicResolution,
    FixedResolution,
    TiledResolution,
)
from reference_plugins.modality.sources import MediaAccess
from reference_plugins.modality.spectrograms import LogMel
from reference_plugins.modality.video import RawVideo, SampledFrames, VideoPlugin
from reference_plugins.modality.video_files import VideoLimits

__all__ = [
    "Attachment",
    "AudioLimits",
    "AudioPlugin",
    "DynamicResolution",
    "EstimateError",
    "Fetcher",
    "FixedResolution",
    "ImageLimits",
    "ImagePlugin",
    "InputError",
    "ItemEmbeddings",
    "LogMel",
    "MediaAccess",
    "MissingLibraryError",
    "ModelConfig",
    "ModelInputs",
    "MultiModalConfig",
    "MultiModalPlugin",
    "MultiModalProcessor",
    "MultiModalRegistry",
    "PlaceholderMismatch",
    "PlaceholderRange",
    "PluginError",
    "RawAudio",
    "RawImage",
    "RawVideo",
    "Request",
    "SampledFrames",
    "TiledResolution",
    "VideoLimits",
    "VideoPlugin",
    "replace",
    "request_from_messages",
]
