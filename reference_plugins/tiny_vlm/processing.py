# SPDX-License-Identifier: Apache-2.0
"""What vLLM asks about the inputs of a TinyVlm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.multimodal.inputs import MultiModalFieldConfig
from vllm.multimodal.processing import (
    BaseDummyInputsBuilder,
    BaseMultiModalProcessor,
    BaseProcessingInfo,
    PromptReplacement,
    PromptUpdateDetails,
)

from reference_plugins.tiny_vlm.configuration import TinyVlmConfig
from reference_plugins.tiny_vlm.images import TinyVlmImageProcessor

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from transformers import BatchFeature
    from vllm.config.multimodal import MultiModalDummyOptions
    from vllm.inputs import MultiModalDataDict
    from vllm.multimodal.inputs import MultiModalKwargsItems
    from vllm.multimodal.parse import MultiModalDataItems
    from vllm.multimodal.processing import PromptUpdate

#: What a prompt has for each image.
IMAGE = "<image>"


class TinyVlmInfo(BaseProcessingInfo):
    """Which items the model takes, and how many tokens they may become."""

    def get_hf_config(self) -> TinyVlmConfig:
        """Return the configuration."""
        config: TinyVlmConfig = self.ctx.get_hf_config(TinyVlmConfig)
        return config

    def get_hf_processor(self, **_: object) -> TinyVlmImageProcessor:
        """Return what cuts images into patches; a request's options are for its call."""
        return TinyVlmImageProcessor(self.get_hf_config())

    def get_supported_mm_limits(self) -> Mapping[str, int | None]:
        """Any number of images; operators limit it with ``--limit-mm-per-prompt``."""
        return {"image": None}

    def get_mm_max_tokens_per_item(
        self, seq_len: int, mm_counts: Mapping[str, int]
    ) -> Mapping[str, int]:
        """Return what no image exceeds: vLLM reserves memory for it, and refuses larger items."""
        del seq_len, mm_counts
        return {"image": self.get_hf_config().max_patches}


class TinyVlmDummyInputs(BaseDummyInputsBuilder[TinyVlmInfo]):
    """Inputs as large as they get, for the run that measures memory."""

    def get_dummy_text(self, mm_counts: Mapping[str, int]) -> str:
        """Return a prompt for so many images."""
        return IMAGE * mm_counts.get("image", 0)

    def get_dummy_mm_data(
        self,
        seq_len: int,
        mm_counts: Mapping[str, int],
        mm_options: MultiModalDummyOptions,
    ) -> MultiModalDataDict:
        """Return images of as many patches as there may be: one long row of them."""
        del seq_len
        config = self.info.get_hf_config()
        images = self._get_dummy_images(
            width=config.patch_size * config.max_patches,
            height=config.patch_size,
            num_images=mm_counts.get("image", 0),
            overrides=mm_options.get("image"),
        )
        return {"image": images}


class TinyVlmProcessor(BaseMultiModalProcessor[TinyVlmInfo]):
    """Puts placeholders where the images are: the rows of patches, each with its end."""

    def _get_mm_fields_config(
        self, hf_inputs: BatchFeature, hf_processor_mm_kwargs: Mapping[str, object]
    ) -> Mapping[str, MultiModalFieldConfig]:
        """Say which rows of the tensors belong to which image."""
        del hf_processor_mm_kwargs
        grids = hf_inputs.get("image_grids")
        if grids is None:  # all images were in the cache
            return {}
        return {
            "pixel_values": MultiModalFieldConfig.flat_from_sizes("image", grids.prod(-1)),
            # The model counts with them: on a device, that would make the host wait.
            "image_grids": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        }

    def _get_prompt_updates(
        self,
        mm_items: MultiModalDataItems,
        hf_processor_mm_kwargs: Mapping[str, object],
        out_mm_kwargs: MultiModalKwargsItems,
    ) -> Sequence[PromptUpdate]:
        """Replace the token of an image by as many as it has patches, with ends of rows.

        The number comes from the very grid that the model gets, so the two cannot differ.
        """
        del mm_items, hf_processor_mm_kwargs
        config = self.info.get_hf_config()
        patch, end = config.image_token_id, config.row_token_id

        def replacement(item: int) -> PromptUpdateDetails:
            # Looked up here: where images come from the cache, the others are counted alone.
            rows, columns = out_mm_kwargs["image"][item]["image_grids"].data.tolist()
            return PromptUpdateDetails.select_token_id(([patch] * columns + [end]) * rows, patch)

        return [PromptReplacement(modality="image", target=[patch], replacement=replacement)]
