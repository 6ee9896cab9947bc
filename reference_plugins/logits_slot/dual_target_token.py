# SPDX-License-Identifier: Apache-2.0
"""One logits processor that leaves one token to sample, for both model runners of vLLM.

vLLM chooses the runner, by model and configuration, and each runner takes classes of its own
interface only. A class that is of both can be named, or be an entry point, wherever it runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import LogitsProcessor as BatchLogitsProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotLogitsProcessor

from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor
from reference_plugins.logits_slot.target_token import TargetTokenSlotLogitsProcessor, target_token

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState


class DualTargetTokenLogitsProcessor(BatchLogitsProcessor, SlotLogitsProcessor):
    """Masks every token but ``target_token``, for the requests that name one.

    Two processors do the work, one for each runner; an instance has the one that its runner needs.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``target_token`` with ``ValueError``; both runners ask the same way."""
        target_token(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device_or_requests: torch.device | LogitsProcRequestState,
        *is_pin_memory: bool,
    ) -> None:
        # The batch interface passes device and is_pin_memory, the slot interface its requests.
        if is_pin_memory:
            self._batch = TargetTokenLogitsProcessor(
                vllm_config, device_or_requests, *is_pin_memory
            )
        else:
            self._slots = TargetTokenSlotLogitsProcessor(vllm_config, device_or_requests)

    # What the V1 runner calls

    def is_argmax_invariant(self) -> bool:
        """Return False: the target is rarely the most likely token."""
        return self._batch.is_argmax_invariant()

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        self._batch.update_state(batch_update)

    # What Model Runner V2 calls

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Overwrite what the slot held, and tell whether rows of this request will be changed."""
        return self._slots.add_request(req_idx, sampling_params)

    def apply_staged_writes(self) -> None:
        """Copy the targets to the device."""
        self._slots.apply_staged_writes()

    # What both call

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        """Mask logits in place, one row for each request or, with ``ctx``, for each logits row."""
        return self._batch.apply(logits) if ctx is None else self._slots.apply(logits, ctx)
