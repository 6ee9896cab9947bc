# SPDX-License-Identifier: Apache-2.0
"""A batch logits processor that lets no run of n tokens occur twice.

A request opts in with ``extra_args={"no_repeat_ngram": 3}``: a token that would complete a run of
three tokens that the outputs hold already is masked. With ``"no_repeat_ngram_history": "all"``
the prompt counts as well.

A step costs the same however long the outputs are: each token is taken in once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from reference_plugins.logits_batch.live_outputs import PLACEHOLDER, LiveOutputs

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate

LONGEST = 32  #: tokens of a run; each output token costs time and memory in proportion


def no_repeat_ngram(params: SamplingParams) -> tuple[int, bool] | None:
    """Return a request's n, and whether its prompt counts; None where it does not opt in.

    Raises:
        ValueError: an argument has a value that means nothing.

    """
    arguments = params.extra_args or {}
    size = arguments.get("no_repeat_ngram")
    if size is None:
        return None
    # bool is a subclass of int.
    if isinstance(size, bool) or not isinstance(size, int) or not 2 <= size <= LONGEST:  # noqa: PLR2004 - a run has a next token
        raise ValueError(f"no_repeat_ngram must be an int from 2 to {LONGEST} (got {size!r})")
    # A word and not a bool: the server's `vllm_xargs` turns true into 1.
    history = arguments.get("no_repeat_ngram_history", "outputs")
    if history not in ("outputs", "all"):
        raise ValueError(f'no_repeat_ngram_history must be "outputs" or "all" (got {history!r})')
    return size, history == "all"


class Ngrams:
    """The runs of one request: which tokens came after each run of ``size - 1``."""

    def __init__(self, size: int, prompt_ids: Sequence[int], output_ids: list[int]) -> None:
        self._before = size - 1
        self._prompt_ids = prompt_ids
        self._outputs = LiveOutputs(output_ids)
        self._start()

    def _start(self) -> None:
        self._followers: dict[tuple[int, ...], set[int]] = {}
        self._run: tuple[int, ...] = ()  #: the newest tokens, ``size - 1`` at most
        for token in self._prompt_ids:
            self._append(token)

    def _append(self, token: int) -> None:
        if token == PLACEHOLDER:  # one that never got its id
            self._run = ()
        elif len(self._run) < self._before:
            self._run = (*self._run, token)
        else:
            self._followers.setdefault(self._run, set()).add(token)
            self._run = (*self._run[1:], token)

    def repeating(self) -> Collection[int]:
        """Take in new outputs, and return the tokens that would complete a run once more."""
        if self._outputs.taken_back():
            self._start()
        for token in self._outputs.read():
            self._append(token)
        # While the newest token is not known, nor is the run that it ends.
        return self._followers.get(self._run, ()) if self._outputs.complete() else ()


class NoRepeatNgramLogitsProcessor(LogitsProcessor):
    """Masks tokens that would repeat a run of ``no_repeat_ngram`` tokens.

    Where a grammar leaves nothing but such tokens they stay: there has to be one to sample.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad arguments with ``ValueError``, which becomes HTTP 400."""
        no_repeat_ngram(sampling_params)

    def __init__(
        self,
        vllm_config: VllmConfig,
        device: torch.device,
        is_pin_memory: bool,  # noqa: FBT001 - vLLM's signature
    ) -> None:
        self._device = device
        self._pin_memory = is_pin_memory
        self._requests: dict[int, Ngrams] = {}  #: by row, of the requests that opted in

    def is_argmax_invariant(self) -> bool:
        """Return False: the most likely token is masked where it repeats a run."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row; a resumed one is added with the outputs it has."""
        if batch_update is not None:
            process_dict_updates(self._requests, batch_update, _ngrams_of)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask logits ``[num_requests, vocab_size]`` in place, without waiting for the device."""
        if not self._requests:
            return logits
        vocab_size = logits.shape[-1]
        masked: dict[int, list[int]] = {}
        for at, ngrams in self._requests.items():
            # A prompt may hold placeholders of images that lie outside the vocabulary.
            if found := [token for token in ngrams.repeating() if token < vocab_size]:
                masked[at] = found
        if masked:
            rows = self._to_device(list(masked))
            row, token, which = self._to_device(
                [(at, it, n) for n, (at, found) in enumerate(masked.items()) for it in found]
            ).unbind(dim=1)
            kept = logits[row, token]
            logits[row, token] = -torch.inf
            empty = logits.index_select(0, rows).amax(dim=-1) == -torch.inf
            logits[row, token] = torch.where(empty[which], kept, -torch.inf)
        return logits

    def _to_device(self, values: Sequence[object]) -> torch.Tensor:
        # From pinned memory the copy is asynchronous; from other memory it would wait.
        on_host = torch.tensor(values, dtype=torch.long, pin_memory=self._pin_memory)
        return on_host.to(self._device, non_blocking=True)


def _ngrams_of(
    params: SamplingParams, prompt_ids: list[int] | None, output_ids: list[int]
) -> Ngrams | None:
    if (wanted := no_repeat_ngram(params)) is None:
        return None
    size, with_prompt = wanted
    # A request that sends embeddings has no prompt token ids.
    return Ngrams(size, (prompt_ids or ()) if with_prompt else (), output_ids)
