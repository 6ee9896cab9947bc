# SPDX-License-Identifier: Apache-2.0
"""A batch logits processor that leaves one token to sample.

A request opts in with ``extra_args={"target_token": 67}``, over HTTP with
``"vllm_xargs": {"target_token": 67}``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

MAX_TOKEN_ID = 2**31 - 1  #: vLLM keeps token ids in 32 bits


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


class TargetTokenLogitsProcessor(LogitsProcessor):
    """Masks every token but ``target_token``, for the requests that name one.

    A target that the model does not have leaves the row as it came: masking all of it would leave
    nothing to sample. So does one that a grammar, a bad word or ``min_tokens`` forbids.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``target_token`` with ``ValueError``, which becomes HTTP 400.

        Ids beyond the vocabulary pass: a class method of the frontend process, which makes no
        instance and shares nothing with the engine, cannot know how many tokens the model has.
        ``apply`` can, and must not raise, since that would end the engine for every request.
        """
        target_token(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        is_pin_memory: bool,  # noqa: FBT001 - vLLM's signature
    ) -> None:
        self._device = device
        self._pin_memory = is_pin_memory
        self._targets: dict[int, int] = {}  #: row -> token, of the requests that opted in
        self._rows = self._tokens = torch.empty(0, dtype=torch.long)
        self._stale = False  #: whether the tensors lag behind the dictionary

    def is_argmax_invariant(self) -> bool:
        """Return False: the target is rarely the most likely token."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        if batch_update is None:  # nobody joined, left or moved
            return
        targets, before = self._targets, self._targets.copy()
        for row in batch_update.removed:
            targets.pop(row, None)
        for row, params, _, _ in batch_update.added:
            targets.pop(row, None)  # a request that is replaced at once is not in `removed`
            if (token := target_token(params)) is not None:
                targets[row] = token
        for a, b, direction in batch_update.moved:
            # Both ends first: whatever b held, a finished request's target included, has to go.
            from_a, from_b = targets.pop(a, None), targets.pop(b, None)
            if from_a is not None:
                targets[b] = from_a
            if from_b is not None and direction is MoveDirectionality.SWAP:
                targets[a] = from_b
        self._stale = self._stale or targets != before

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask logits ``[num_requests, vocab_size]`` in place, without waiting for the device."""
        if self._stale:
            self._upload(vocab_size=logits.shape[-1])
        if not self._targets:
            return logits
        kept = logits[self._rows, self._tokens]
        rows = logits[self._rows]
        logits[self._rows] = rows.masked_fill_((kept > -torch.inf).unsqueeze(1), -torch.inf)
        logits[self._rows, self._tokens] = kept
        return logits

    def _upload(self, vocab_size: int) -> None:
        """Copy the targets to the device, and forget those that the model does not have."""
        self._targets = {row: token for row, token in self._targets.items() if token < vocab_size}
        self._rows = self._to_device(list(self._targets))
        self._tokens = self._to_device(list(self._targets.values()))
        self._stale = False

    def _to_device(self, values: list[int]) -> torch.Tensor:
        # From pinned memory the copy is asynchronous; from other memory it would wait.
        on_host = torch.tensor(values, dtype=torch.long, pin_memory=self._pin_memory)
        return on_host.to(self._device, non_blocking=True)
