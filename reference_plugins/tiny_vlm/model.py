# SPDX-License-Identifier: Apache-2.0
"""The model: patches through two layers, in the places of their placeholders, into a Llama."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn
from vllm.model_executor.models.interfaces import MultiModalEmbeddings, SupportsMultiModal
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    init_vllm_registered_model,
    maybe_prefix,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

from reference_plugins.tiny_vlm.processing import (
    IMAGE,
    TinyVlmDummyInputs,
    TinyVlmInfo,
    TinyVlmProcessor,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from vllm.config import VllmConfig
    from vllm.sequence import IntermediateTensors

    from reference_plugins.tiny_vlm.configuration import TinyVlmConfig


class PatchEncoder(nn.Module):
    """Embeds patches by their pixels and by their place in the image."""

    def __init__(self, config: TinyVlmConfig) -> None:
        """Make the layers."""
        super().__init__()
        size = config.text_config.hidden_size
        self.pixels = nn.Linear(3 * config.patch_size**2, size)
        self.rows = nn.Embedding(config.max_patches, size)
        self.columns = nn.Embedding(config.max_patches, size)
        self.output = nn.Linear(size, size)

    def forward(self, pixels: torch.Tensor, grids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return the embeddings of each image.

        Args:
            pixels: of the patches of all images, of shape (patches, 3 * patch * patch).
            grids: on the host, rows and columns of each image, of shape (images, 2).

        Returns:
            For each image a tensor of shape (its patches, hidden size).

        """
        sizes, rows, columns = [], [], []
        for height, width in grids.tolist():
            sizes.append(height * width)
            rows.append(torch.arange(height).repeat_interleave(width))
            columns.append(torch.arange(width).repeat(height))
        places = self.rows(torch.cat(rows).to(pixels.device, non_blocking=True))
        places = places + self.columns(torch.cat(columns).to(pixels.device, non_blocking=True))
        hidden = nn.functional.gelu(self.pixels(pixels) + places)
        # Raises where the patches are not as many as the grids say: vLLM itself would cut what is
        # too much, and repeat a single row.
        embeddings: tuple[torch.Tensor, ...] = self.output(hidden).split(sizes)
        return embeddings


@MULTIMODAL_REGISTRY.register_processor(
    TinyVlmProcessor, info=TinyVlmInfo, dummy_inputs=TinyVlmDummyInputs
)
class TinyVlm(nn.Module, SupportsMultiModal):
    """A Llama that sees."""

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Return what stands for an image in a chat."""
        del i
        if modality == "image":
            return IMAGE
        raise ValueError(f"TinyVlm takes images, and no {modality}")

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Make the layers; vLLM loads the weights afterwards."""
        super().__init__()
        config: TinyVlmConfig = vllm_config.model_config.hf_config
        # vLLM leaves out what is marked where it is not wanted: no encoder for a limit of no
        # images, no language model where an engine only encodes.
        with self._mark_tower_model(vllm_config, "image"):
            self.encoder = PatchEncoder(config)
        with self._mark_language_model(vllm_config):
            self.language_model = init_vllm_registered_model(
                vllm_config=vllm_config,
                hf_config=config.text_config,
                prefix=maybe_prefix(prefix, "language_model"),
                architectures=["LlamaForCausalLM"],
            )
        self.make_empty_intermediate_tensors = self.language_model.make_empty_intermediate_tensors

    def embed_multimodal(self, **kwargs: object) -> MultiModalEmbeddings:
        """Return the embeddings of images: for each a tensor of shape (its patches, hidden size).

        They come in the order of the items, and an image's are the same whoever is beside it.
        """
        pixels, grids = kwargs.get("pixel_values"), kwargs.get("image_grids")
        if pixels is None:
            return []
        assert isinstance(pixels, torch.Tensor)
        assert isinstance(grids, torch.Tensor)
        return self.encoder(pixels, grids)

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: object,
    ) -> torch.Tensor | IntermediateTensors:
        """Run the language model; vLLM has put the embeddings into their places."""
        return self.language_model.model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the logits of shape (tokens, vocabulary)."""
        return self.language_model.compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load a checkpoint, whose names are those of the modules."""
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights)
        return loaded
