# SPDX-License-Identifier: Apache-2.0
"""A logits processor of each interface that lets a request have one token only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vllm.v1.sample.logits_processor import LogitsProcessor as BatchProcessor
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotProcessor

if TYPE_CHECKING:
    import torch
    from vllm.sampling_params import SamplingParams


class Slots(SlotProcessor):
    """For Model Runner V2."""

    def __init__(self, _config: object, _states: object) -> None:
        """Begin without requests."""
        self.targets: dict[int, int] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse what is no number."""
        target = (sampling_params.extra_args or {}).get("target_token", 0)
        if not isinstance(target, int):
            raise ValueError(f"target_token {target!r} is no int")  # noqa: TRY004 - the interface's

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Take the request's token, if it has one."""
        self.targets.pop(req_idx, None)
        if sampling_params.extra_args:
            self.targets[req_idx] = sampling_params.extra_args["target_token"]
        return req_idx in self.targets

    def apply(self, logits: torch.Tensor, ctx: Any) -> torch.Tensor:  # noqa: ANN401 - vLLM's
        """Mask all other tokens."""
        for row, slot in enumerate(ctx.expanded_idx_mapping.tolist()):
            if slot in self.targets:
                kept = logits[row, self.targets[slot]].clone()
                logits[row] = -float("inf")
                logits[row, self.targets[slot]] = kept
        return logits


class Batches(BatchProcessor):
    """For the V1 model runner; does nothing, since no engine here is to get so far."""

    def __init__(self, _config: object, _device: object, _pinned: object) -> None:
        """Do nothing."""

    def is_argmax_invariant(self) -> bool:
        """Claim nothing."""
        return False

    def update_state(self, batch_update: object) -> None:
        """Do nothing."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Do nothing."""
        return logits
