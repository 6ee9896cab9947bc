# SPDX-License-Identifier: Apache-2.0
"""A batch logits processor that ends thinking once it has taken enough tokens.

A request opts in with ``extra_args={"thinking_budget": 100, "thinking_start": 5,
"thinking_end": [7, 11]}``. A hundred tokens after a start marker, which may be in the prompt,
the end marker is forced, token by token. Every section of thinking has the whole budget.

Where a request stands is derived from its tokens alone, so preemption changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from reference_plugins.logits_batch.live_outputs import LiveOutputs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

LONGEST = 32  #: token ids of a marker
MAX_TOKEN_ID = 2**31 - 1  #: vLLM keeps token ids in 32 bits


class Budget(NamedTuple):
    """What a request asks for."""

    tokens: int
    start: tuple[int, ...]
    end: tuple[int, ...]


def thinking_budget(params: SamplingParams) -> Budget | None:
    """Return the budget of a request, or None where it does not opt in.

    Raises:
        ValueError: an argument is missing or means nothing, or the request forbids the end marker.

    """
    arguments = params.extra_args or {}
    tokens = arguments.get("thinking_budget")
    if tokens is None:
        return None
    # bool is a subclass of int.
    if isinstance(tokens, bool) or not isinstance(tokens, int) or tokens < 0:
        raise ValueError(f"thinking_budget must be an int of 0 or more (got {tokens!r})")
    start, end = _marker(arguments, "thinking_start"), _marker(arguments, "thinking_end")
    if params.allowed_token_ids and not set(end) <= set(params.allowed_token_ids):
        raise ValueError(f"thinking_end {list(end)} is not among the request's allowed_token_ids")
    return Budget(tokens, start, end)


def _marker(arguments: Mapping[str, Any], key: str) -> tuple[int, ...]:
    value = arguments.get(key)
    ids = tuple(value) if isinstance(value, list | tuple) else (value,)
    if not 1 <= len(ids) <= LONGEST or not all(
        isinstance(token, int) and not isinstance(token, bool) and 0 <= token <= MAX_TOKEN_ID
        for token in ids
    ):
        raise ValueError(f"{key} must be a token id or a list of 1 to {LONGEST} (got {value!r})")
    return ids


class Thinking:
    """Where one request stands: within a section of thinking or not, and how far."""

    def __init__(self, budget: Budget, prompt_ids: Sequence[int], output_ids: list[int]) -> None:
        self._budget = budget
        self._prompt_ids = prompt_ids
        self._output_ids = output_ids
        self._outputs = LiveOutputs(output_ids)
        self._seen = 0  #: how many outputs there were when they were looked at
        self._due = 0  #: with fewer outputs the budget cannot be spent
        self._start()

    def _start(self) -> None:
        self._inside = False
        self._spent = 0  #: tokens since the start marker
        self._tail: tuple[int, ...] = ()  #: the newest of them, as many as the next marker has
        for token in self._prompt_ids:
            self._append(token)

    def _append(self, token: int) -> None:
        marker = self._budget.end if self._inside else self._budget.start
        self._tail = (*self._tail, token)[-len(marker) :]
        self._spent += self._inside
        if self._tail == marker:
            self._inside, self._spent, self._tail = not self._inside, 0, ()

    def forced(self, vocab_size: int) -> int | None:
        """Return the token that has to come next, if there is one.

        New outputs are taken in when the budget may be spent, and when they did not just grow.
        """
        before, self._seen = self._seen, len(self._output_ids)
        if before < self._seen < self._due:
            return None
        if self._outputs.taken_back():
            self._start()
        for token in self._outputs.read():
            self._append(token)
        left = self._budget.tokens - self._spent if self._inside else self._budget.tokens + 1
        self._due = self._outputs.count() + left
        if not self._inside or self._spent < self._budget.tokens or not self._outputs.complete():
            return None
        tail, end = self._tail, self._budget.end
        if max(end) >= vocab_size:  # the model cannot write all of it: not even the beginning then
            return None
        # The marker goes on from where the newest tokens leave it: where they are its first two,
        # forced or not, the third is next.
        there = next(n for n in range(len(tail), -1, -1) if tail[len(tail) - n :] == end[:n])
        return end[there]


class ThinkingBudgetLogitsProcessor(LogitsProcessor):
    """Leaves one token, the next of the end marker, where the thinking budget is spent.

    Where a grammar forbids that token the row stays as it is, and the next step tries again.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad arguments with ``ValueError``, which becomes HTTP 400."""
        thinking_budget(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        is_pin_memory: bool,  # noqa: FBT001 - vLLM's signature
    ) -> None:
        self._device = device
        self._pin_memory = is_pin_memory
        self._requests: dict[int, Thinking] = {}  #: by row, of the requests that opted in

    def is_argmax_invariant(self) -> bool:
        """Return False: the end marker is rarely the most likely continuation."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row; a resumed one is added with the outputs it has."""
        if batch_update is not None:
            process_dict_updates(self._requests, batch_update, _thinking_of)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask logits ``[num_requests, vocab_size]`` in place, without waiting for the device."""
        if not self._requests:
            return logits
        vocab_size = logits.shape[-1]
        forced = {
            row: token
            for row, thinking in self._requests.items()
            if (token := thinking.forced(vocab_size)) is not None
        }
        if forced:
            # From pinned memory the copy is asynchronous; from other memory it would wait.
            on_host = torch.tensor(list(forced.items()), pin_memory=self._pin_memory)
            rows, tokens = on_host.to(self._device, non_blocking=True).unbind(dim=1)
            kept = logits[rows, tokens]
            barred = torch.zeros(len(logits), 1, dtype=torch.bool, device=self._device)
            barred[rows, 0] = kept > -torch.inf
            logits.masked_fill_(barred, -torch.inf)
            logits[rows, tokens] = kept
        return logits


def _thinking_of(
    params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]
) -> Thinking | None:
    budget = thinking_budget(params)
    # A request that sends embeddings has no prompt token ids.
    return None if budget is None else Thinking(budget, prompt_ids or (), output_ids)
