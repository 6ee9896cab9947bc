# SPDX-License-Identifier: Apache-2.0
"""A batch logits processor that makes some tokens likelier, or less likely.

A request opts in with ``extra_args={"biased_tokens": [40, 7], "token_bias": -5.0}``: the bias is
added to the logits of these tokens. It is vLLM's ``logit_bias``, written for arguments of its own.

A step touches no more logits than the requests name, however large batch and vocabulary are:
the pattern for processors that change a few tokens of a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

MAX_TOKEN_ID = 2**31 - 1  #: vLLM keeps token ids in 32 bits
MOST_TOKENS = 1024  #: of one request; each costs time in every step
LARGEST = 100.0  #: as in OpenAI's ``logit_bias``: it decides against any other token


def token_bias(params: SamplingParams) -> tuple[tuple[int, ...], float] | None:
    """Return the tokens of a request and what is added, or None where it does not opt in.

    Raises:
        ValueError: one argument is missing, or has a value that means nothing.

    """
    arguments = params.extra_args or {}
    tokens, bias = arguments.get("biased_tokens"), arguments.get("token_bias")
    if tokens is None and bias is None:
        return None
    # bool is a subclass of int, and NaN is in no range.
    if isinstance(bias, bool) or not isinstance(bias, int | float) or not abs(bias) <= LARGEST:
        raise ValueError(
            f"token_bias must be a number from -{LARGEST:g} to {LARGEST:g} (got {bias!r})"
        )
    if not isinstance(tokens, list) or not tokens or not all(map(_is_token, tokens)):
        raise ValueError(f"biased_tokens must be a list of token ids (got {tokens!r})")
    if len(tokens) > MOST_TOKENS:
        raise ValueError(f"biased_tokens must be {MOST_TOKENS} at most (got {len(tokens)})")
    return (tuple(dict.fromkeys(tokens)), float(bias)) if bias else None


def _is_token(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TOKEN_ID


class TokenBiasLogitsProcessor(LogitsProcessor):
    """Adds ``token_bias`` to the logits of ``biased_tokens``.

    Tokens that the model does not have are passed over.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad arguments with ``ValueError``, which becomes HTTP 400."""
        token_bias(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        is_pin_memory: bool,  # noqa: FBT001 - vLLM's signature
    ) -> None:
        self._device = device
        self._pin_memory = is_pin_memory
        #: Row -> its tokens and what is added to each, of the requests that opted in.
        self._requests: dict[int, tuple[tuple[int, ...], float]] = {}
        self._rows = self._tokens = torch.empty(0, dtype=torch.long)
        self._biases = torch.empty(0)
        self._stale = False  #: whether the tensors lag behind the dictionary

    def is_argmax_invariant(self) -> bool:
        """Return False: a bias may make another token the most likely one."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        if batch_update is not None:
            changed = process_dict_updates(self._requests, batch_update, _bias_of)
            self._stale = self._stale or changed

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Change logits ``[num_requests, vocab_size]`` in place, without waiting for the device."""
        if not self._requests:
            return logits
        if self._stale:
            self._upload(vocab_size=logits.shape[-1])
        # No token is named twice in a row, so that none of the sums is lost.
        logits[self._rows, self._tokens] += self._biases
        return logits

    def _upload(self, vocab_size: int) -> None:
        """Copy rows, tokens and biases to the device, an item for every logit that changes."""
        changes = [
            (row, token, bias)
            for row, (tokens, bias) in self._requests.items()
            for token in tokens
            if token < vocab_size
        ]
        # 64 bits, in which torch takes indices as they are; other integers it would convert
        # in every step.
        self._rows = self._to_device([row for row, _, _ in changes], torch.long)
        self._tokens = self._to_device([token for _, token, _ in changes], torch.long)
        self._biases = self._to_device([bias for _, _, bias in changes], torch.float32)
        self._stale = False

    def _to_device(self, values: Sequence[float], dtype: torch.dtype) -> torch.Tensor:
        # From pinned memory the copy is asynchronous; from other memory it would wait.
        on_host = torch.tensor(values, dtype=dtype, pin_memory=self._pin_memory)
        return on_host.to(self._device, non_blocking=True)


def _bias_of(
    params: SamplingParams, prompt_ids: Sequence[int] | None, output_ids: Sequence[int]
) -> tuple[tuple[int, ...], float] | None:
    return token_bias(params)
