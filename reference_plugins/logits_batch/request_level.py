# SPDX-License-Identifier: Apache-2.0
"""Request-level callables, wrapped for the batch interface.

The wrapper follows rows, moves and finished requests; what is left to write is what happens to
one row. It costs a Python call for every request and step: where many requests opt in, write a
batch logits processor as in ``target_token.py``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

from reference_plugins.logits_batch.target_token import target_token

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate, RequestLogitsProcessor


def keep_target(token: int, output_ids: list[int], logits: torch.Tensor) -> torch.Tensor:
    """Mask every token of a row ``[vocab_size]`` but the target, in place.

    ``output_ids`` is the live list of the request's outputs; nothing depends on it here.
    """
    if token < logits.shape[0]:  # else the model does not have it, and nothing would be left
        target = logits[token]  # a view, so that the row is indexed once
        kept = target.clone()  # not `item()`, which would wait for the device
        # Where a grammar or a bad word forbids the target, the row stays as it is.
        logits.masked_fill_(kept > -torch.inf, -torch.inf)
        target.copy_(kept)
    return logits


class KeepTargetAndPrompt:
    """Masks every token of a row but the target and those of the prompt, in place.

    One instance serves one request, so it may keep what it works out in the first step.
    """

    def __init__(self, token: int) -> None:
        self._token = token
        self._allowed: torch.Tensor | None = None

    def __call__(
        self, prompt_ids: Sequence[int], output_ids: Sequence[int], logits: torch.Tensor
    ) -> torch.Tensor:
        """Mask a row ``[vocab_size]``."""
        if self._allowed is None:
            # Placeholders of images and the like may lie outside the vocabulary.
            known = {token for token in (self._token, *prompt_ids) if 0 <= token < len(logits)}
            self._allowed = torch.tensor(sorted(known), device=logits.device, dtype=torch.long)
        if len(self._allowed):
            kept = logits[self._allowed]
            # Where a grammar forbids all of them, the row stays as it is.
            logits.masked_fill_((kept > -torch.inf).any(), -torch.inf)
            logits[self._allowed] = kept
        return logits


class TwoArgumentTargetToken(AdapterLogitsProcessor):
    """Wraps a callable ``(output_ids, logits)``; ``extra_args={"target_token": 67}`` opts in."""

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``target_token`` with ``ValueError``, which becomes HTTP 400."""
        target_token(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """Return False: the target is rarely the most likely token."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return a callable for a request that opts in: a new one, never one that is shared."""
        token = target_token(params)
        return None if token is None else partial(keep_target, token)


class ThreeArgumentTargetToken(AdapterLogitsProcessor):
    """Wraps a callable ``(prompt_ids, output_ids, logits)``: three arguments are given the prompt.

    A request that sends embeddings has no prompt token ids. The wrapper raises for it where
    three arguments are asked for, which ends the engine, so it is handed an empty prompt.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse a bad ``target_token`` with ``ValueError``, which becomes HTTP 400."""
        target_token(sampling_params)

    def is_argmax_invariant(self) -> bool:
        """Return False: the tokens that are left are rarely the most likely ones."""
        return False

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return a callable for a request that opts in: a new one, never one that is shared."""
        token = target_token(params)
        return None if token is None else KeepTargetAndPrompt(token)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row, those without prompt token ids too."""
        if batch_update is not None:
            added = [
                (row, params, [] if prompt_ids is None else prompt_ids, output_ids)
                for row, params, prompt_ids, output_ids in batch_update.added
            ]
            batch_update = replace(batch_update, added=added)
        super().update_state(batch_update)
