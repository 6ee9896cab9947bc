# SPDX-License-Identifier: Apache-2.0
"""Tiny multi-modal models on disk, by name and by the class of vLLM that they are made for."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path

import attrs

from conformance.engine import audio_models, checkpoints, models, vision_models
from conformance.engine.environment import made_once
from conformance.inputs import tiny_tokenizer


@attrs.frozen
class Placeholder:
    """What stands in a prompt for an item of a modality."""

    text: str  #: what a prompt has before it is processed, once for each item
    token: str  #: the token that is repeated, once for each embedding


@attrs.frozen
class TinyModel:
    """A tiny random model of one of vLLM's multi-modal classes."""

    name: str  #: what a profile calls it
    model_class: str  #: ``"package.module:Class"``
    placeholders: Mapping[str, Placeholder]  #: by modality
    write: Callable[[Path], Path]  #: writes the checkpoint into a folder and returns the folder
    requires: tuple[str, ...] = ()  #: packages without which vLLM cannot import the class

    @property
    def modalities(self) -> tuple[str, ...]:
        """What items the model takes."""
        return tuple(self.placeholders)

    @property
    def architecture(self) -> str:
        """The name of the class."""
        return self.model_class.partition(":")[2]

    def folder(self, cache_dir: Path | None = None) -> Path:
        """Return the folder of the model, made if it is not there.

        *cache_dir* is by default where the tiny Llama is.
        Any number of processes may ask for it at the same time.

        Raises:
            OSError: if the cache folder cannot be written.

        """
        parent = models.tiny_llama().parent if cache_dir is None else cache_dir
        final = parent / f"{self.name}-{_content()}"
        return made_once(final, self.write)


def _content() -> str:
    """Return a digest of the recipes: whatever changes in them makes other models."""
    digest = hashlib.sha256()
    for module in (models, tiny_tokenizer, checkpoints, vision_models, audio_models):
        assert module.__file__ is not None
        digest.update(Path(module.__file__).read_bytes())
    return digest.hexdigest()[:12]


_VISION = vision_models.QWEN2_VL_TOKENS
_AUDIO = audio_models.QWEN2_AUDIO_TOKENS

TINY_LLAVA = TinyModel(
    "tiny-llava",
    "vllm.model_executor.models.llava:LlavaForConditionalGeneration",
    {"image": Placeholder("<image>", "<image>")},
    vision_models.llava,
    ("torchvision",),
)
TINY_QWEN2_VL = TinyModel(
    "tiny-qwen2-vl",
    "vllm.model_executor.models.qwen2_vl:Qwen2VLForConditionalGeneration",
    {
        "image": Placeholder(f"{_VISION[0]}{_VISION[3]}{_VISION[1]}", _VISION[3]),
        "video": Placeholder(f"{_VISION[0]}{_VISION[4]}{_VISION[1]}", _VISION[4]),
    },
    vision_models.qwen2_vl,
    ("torchvision",),
)
TINY_QWEN2_AUDIO = TinyModel(
    "tiny-qwen2-audio",
    "vllm.model_executor.models.qwen2_audio:Qwen2AudioForConditionalGeneration",
    {"audio": Placeholder("".join(_AUDIO[:3]), _AUDIO[1])},
    audio_models.qwen2_audio,
)

#: What a profile may call a model.
MODELS: Mapping[str, TinyModel] = {
    model.name: model for model in (TINY_LLAVA, TINY_QWEN2_VL, TINY_QWEN2_AUDIO)
}


def of_class(architecture: str) -> TinyModel | None:
    """Return the tiny model of a class of vLLM, by the name of the class, if there is one."""
    return next((m for m in MODELS.values() if m.architecture == architecture), None)
