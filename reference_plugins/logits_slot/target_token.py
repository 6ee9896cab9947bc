# SPDX-License-Identifier: Apache-2.0
"""A slot logits processor that leaves one token to sample.

A request opts in with ``extra_args={"target_token": 67}``, over HTTP with
``"vllm_xargs": {"target_token": 67}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState

MAX_TOKEN_ID = 2**31 - 1  #: vLLM keeps token ids in 32 bits
NO_TARGET = -1


def target_token(params: SamplingParams) -> int | None:
    """Return the token that a request asks for, or None where it does not opt in.

    Raises:
        ValueError: the argument is no token id of any vocabulary, or one that the request forbids.

    """
    token = (params.extra_args or {}).get("target_token")
    if token is None:
        return None
    # bool is a subclass of int: without the first test True would mean token 1.
    if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token <= MAX_TOKEN_ID:
        raise ValueError(f"target_token must be a token id, an int of 0 or more (got {token!r})")
    if params.allowed_token_ids and token not in params.allowed_token_ids:
        raise ValueError(f"target_token {token} is not among the request's allowed_token_ids")
    return token


class TargetTokenSlotLogitsProcessor(LogitsProcessor):
    """Masks every token but ``target_token``, for the requests that name one.

    Where a grammar forbids the target the row stays as it is: there has to be a token to sample.
    So it does where the model has no such token.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``target_token`` with ``ValueError``, which becomes HTTP 400.

        Ids beyond the vocabulary pass: a class method of the frontend process, which makes no
        instance and shares nothing with the engine, cannot know how many tokens the model has.
        """
        target_token(sampling_params)

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        self._device = req_states.device
        self._pin_memory = self._device.type == "cuda"
        self._vocab_size = req_states.vocab_size
        # By slot. The runner's warm-up may call apply before anything was flushed, so there is
        # a tensor from the beginning.
        self._targets = np.full(req_states.max_num_reqs, NO_TARGET, dtype=np.int64)
        self._on_device = torch.full(self._targets.shape, NO_TARGET, device=self._device)
        self._stale = False  #: whether the tensor lags behind the array

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Overwrite what the slot held, and tell whether rows of this request will be changed."""
        token = target_token(sampling_params)
        if token is None or token >= self._vocab_size:
            token = NO_TARGET  # also where nobody opts in: the slot is used again and again
        self._stale = self._stale or token != self._targets[req_idx]
        self._targets[req_idx] = token
        return token != NO_TARGET

    def apply_staged_writes(self) -> None:
        """Copy the targets to the device, once for all requests that joined in this step."""
        if self._stale:
            # A copy either way: the array may change while the tensor is still on its way.
            # (torch.tensor does not pin what it makes of an array.)
            on_host = torch.from_numpy(self._targets)
            on_host = on_host.pin_memory() if self._pin_memory else on_host.clone()
            self._on_device = on_host.to(self._device, non_blocking=True)
            self._stale = False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Mask logits ``[num_logits_rows, vocab_size]`` in place, without waiting for the device.

        Under speculative decoding a request has several rows; how many of them belong to whom
        only the device knows. So every row is treated alike, and most keep what they have.
        """
        if not (self._targets[ctx.idx_mapping_np] != NO_TARGET).any():
            return logits
        target = self._on_device[ctx.expanded_idx_mapping].unsqueeze(1)
        index = target.clamp(min=0)
        kept = logits.gather(1, index)
        logits.masked_fill_((target != NO_TARGET) & (kept > -torch.inf), -torch.inf)
        return logits.scatter_(1, index, kept)
