# SPDX-License-Identifier: Apache-2.0
"""Models that pool, for what engines and servers make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from vllm.model_executor.layers.pooler import DispatchPooler
from vllm.model_executor.models.interfaces_base import default_pooling_type

from fixtures.unusual.mm_processor.pooling_model import PoolingModel

if TYPE_CHECKING:
    from vllm.config import VllmConfig


@default_pooling_type(seq_pooling_type="MEAN")
class Means(PoolingModel):
    """Pools all hidden states of a prompt, which therefore cannot come in chunks."""


class _Mixing(DispatchPooler):
    """Adds to each answer what the others of the step are, on average."""

    def forward(self, hidden_states: torch.Tensor, pooling_metadata: Any) -> Any:  # noqa: ANN401 - of vLLM
        """Return the answers of a step."""
        found = super().forward(hidden_states, pooling_metadata)
        known = [one for one in found if one is not None]
        mean = torch.stack(known).mean(0) if known else None
        return [None if one is None else one + mean for one in found]


class MixesAnswers(PoolingModel):
    """Answers depend on who is asked about in the same step."""

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:
        """Make the layers."""
        super().__init__(vllm_config=vllm_config, prefix=prefix)
        self.pooler = _Mixing.for_embedding(vllm_config.model_config.pooler_config)
