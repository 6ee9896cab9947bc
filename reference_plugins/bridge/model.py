# SPDX-License-Identifier: Apache-2.0
"""The model: what the plugin's model makes of items, in the places of their placeholders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from vllm.model_executor.models.interfaces import MultiModalEmbeddings, SupportsMultiModal
from vllm.model_executor.models.utils import (
    AutoWeightsLoader,
    WeightsMapper,
    init_vllm_registered_model,
    maybe_prefix,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

from reference_plugins.bridge.processing import (
    JOIN,
    TOKENS,
    BridgedDummyInputs,
    BridgedInfo,
    BridgedProcessor,
)
from reference_plugins.modality.errors import PlaceholderMismatch

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from vllm.config import VllmConfig
    from vllm.sequence import IntermediateTensors

    from reference_plugins.bridge.serving import Serving

#: Of the numbers by which rows become embeddings; a checkpoint of a text model has none.
SEED = 7

#: Values of rows are of any size: small ones count, and large ones do not drown the others.
SCALE = 8.0


def bridged(serving: Serving) -> type[nn.Module]:
    """Return a model class of vLLM for plugins and the model that wants their items."""
    info = type("Info", (BridgedInfo,), {"serving": serving})
    cls = type(serving.name, (BridgedModel,), {"serving": serving, "__module__": __name__})
    registered: type[nn.Module] = MULTIMODAL_REGISTRY.register_processor(
        BridgedProcessor, info=info, dummy_inputs=BridgedDummyInputs
    )(cls)
    return registered


class BridgedModel(nn.Module, SupportsMultiModal):
    """A text model that is shown the items of plugins."""

    serving: Serving

    @classmethod
    def get_placeholder_str(cls, modality: str, i: int) -> str | None:
        """Refuse vLLM's own chat parts, which would decode items before a plugin sees them."""
        del i
        raise ValueError(f"chats with {modality} need a server with --tokenizer-mode modality")

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Make the text model; vLLM loads its weights afterwards."""
        super().__init__()
        config = vllm_config.model_config.hf_config
        self.hidden_size = config.get_text_config().hidden_size
        self.language_model = init_vllm_registered_model(
            vllm_config=vllm_config,
            hf_config=config,
            prefix=maybe_prefix(prefix, "language_model"),
            architectures=[self.serving.text],
        )
        self.make_empty_intermediate_tensors = self.language_model.make_empty_intermediate_tensors

    def get_language_model(self) -> nn.Module:
        """Return the text model."""
        return self.language_model

    def embed_multimodal(self, **kwargs: object) -> MultiModalEmbeddings:
        """Return the embeddings of items: for each a tensor of shape (its tokens, hidden size).

        Raises:
            PlaceholderMismatch: the encoder made more rows, or fewer, than the plugin counted;
                vLLM itself would cut what is too much, and repeat a single row.

        """
        weight = next(self.language_model.parameters())
        found = []
        for modality, index, features, tokens in _items(kwargs):
            rows = self.serving.encode(features, tokens)
            if len(rows) != tokens:
                raise PlaceholderMismatch(
                    f"{modality}[{index}]: the plugin counted {tokens} tokens, and the encoder "
                    f"made {len(rows)} rows",
                    modality=modality,
                    index=index,
                    expected=tokens,
                    actual=len(rows),
                )
            found.append(projected(torch.from_numpy(rows), self.hidden_size).to(weight))
        return found

    def forward(
        self,
        input_ids: torch.Tensor | None,
        positions: torch.Tensor,
        intermediate_tensors: IntermediateTensors | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **_: object,
    ) -> torch.Tensor | IntermediateTensors:
        """Run the text model; vLLM has put the embeddings into their places."""
        return self.language_model.model(
            input_ids, positions, intermediate_tensors, inputs_embeds=inputs_embeds
        )

    def compute_logits(self, hidden_states: torch.Tensor) -> torch.Tensor | None:
        """Return the logits of shape (tokens, vocabulary)."""
        return self.language_model.compute_logits(hidden_states)

    def load_weights(self, weights: Iterable[tuple[str, torch.Tensor]]) -> set[str]:
        """Load a checkpoint of the text model alone."""
        mapper = WeightsMapper(orig_to_new_prefix={"": "language_model."})
        loaded: set[str] = AutoWeightsLoader(self).load_weights(weights, mapper=mapper)
        return loaded


def projected(rows: torch.Tensor, hidden_size: int) -> torch.Tensor:
    """Return embeddings of shape (rows, hidden size), the same ones in every process."""
    width = rows.shape[1]
    random = torch.Generator().manual_seed(SEED)
    weights = torch.randn(width, hidden_size, generator=random) / width**0.5
    bias = torch.randn(hidden_size, generator=random)
    return torch.asinh(rows.float() * SCALE) @ weights + bias


def _items(kwargs: dict[str, Any]) -> Iterator[tuple[str, int, dict[str, Any], int]]:
    """Yield modality, place, arrays and tokens of each item in what vLLM gathered."""
    modality = next(iter(kwargs)).partition(JOIN)[0] if kwargs else ""
    for index, tokens in enumerate(kwargs.get(modality + TOKENS, ())):
        features = {
            name.removeprefix(modality + JOIN): values[index].cpu().numpy()
            for name, values in kwargs.items()
            if name != modality + TOKENS
        }
        yield modality, index, features, int(tokens)
