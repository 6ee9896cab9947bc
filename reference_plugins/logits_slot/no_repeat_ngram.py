# SPDX-License-Identifier: Apache-2.0
"""A slot logits processor that lets no run of n tokens occur twice.

A request opts in with ``extra_args={"no_repeat_ngram": 3}``: a token that would complete a run of
three tokens that the outputs hold already is masked. With ``"no_repeat_ngram_history": "all"``
the prompt counts as well.

It keeps nothing of what was said: every step reads the history that vLLM has on the device.
A step costs in proportion to the longest history of the batch.
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

LONGEST = 32  #: tokens of a run; a step costs time in proportion


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


class NoRepeatNgramSlotLogitsProcessor(LogitsProcessor):
    """Masks tokens that would repeat a run of ``no_repeat_ngram`` tokens.

    Where a grammar leaves nothing but such tokens they stay: there has to be one to sample.
    """

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad arguments with ``ValueError``, which becomes HTTP 400."""
        no_repeat_ngram(sampling_params)

    def __init__(self, vllm_config: VllmConfig, req_states: LogitsProcRequestState) -> None:
        # The object and not its tensors: `prompt_len.gpu` is another one after each step that
        # adds requests.
        self._req_states = req_states
        self._device = req_states.device
        self._pin_memory = self._device.type == "cuda"
        # By slot: n, or 0, and whether the prompt counts.
        self._wanted = np.zeros((2, req_states.max_num_reqs), dtype=np.int64)
        self._on_device = torch.zeros(self._wanted.shape, dtype=torch.int64, device=self._device)
        self._stale = False  #: whether the tensor lags behind the array

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Overwrite what the slot held, and tell whether rows of this request may be changed.

        A request that resumes after preemption is one like any other: its outputs are in the
        history, and ``prompt_len`` says where they begin.
        """
        wanted = no_repeat_ngram(sampling_params) or (0, False)
        self._stale = self._stale or (self._wanted[:, req_idx] != wanted).any()
        self._wanted[:, req_idx] = wanted
        return wanted[0] > 0

    def apply_staged_writes(self) -> None:
        """Copy the arguments to the device, once for all requests that joined in this step."""
        if self._stale:
            # A copy either way: the array may change while the tensor is still on its way.
            # (torch.tensor does not pin what it makes of an array.)
            on_host = torch.from_numpy(self._wanted)
            on_host = on_host.pin_memory() if self._pin_memory else on_host.clone()
            self._on_device = on_host.to(self._device, non_blocking=True)
            self._stale = False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Mask logits ``[num_logits_rows, vocab_size]`` in place, without waiting for the device.

        Sizes that depend on tokens only the device knows. So each row gets a place for every
        token of the longest history, and the places where no run ends change nothing.
        """
        sizes = self._wanted[0, ctx.idx_mapping_np]
        if not sizes.any():
            return logits
        longest = int(ctx.seq_lens_upper_bound_np[: len(sizes)][sizes > 0].max())
        tokens = self._history(ctx, longest, drafts=len(logits) != len(sizes))
        repeats = self._repeats(ctx, tokens, longest_run=int(sizes.max()))
        # A prompt may hold placeholders of images that lie outside the vocabulary.
        repeats &= (tokens >= 0) & (tokens < logits.shape[1])
        tokens = tokens.clamp_(0, logits.shape[1] - 1)
        kept = logits.gather(1, tokens)
        infinity = torch.full_like(kept, torch.inf)
        # The least of several values, and the greatest: repeated tokens do not disagree.
        logits.scatter_reduce_(1, tokens, torch.where(repeats, -infinity, infinity), "amin")
        empty = logits.amax(dim=1, keepdim=True) == -torch.inf
        return logits.scatter_reduce_(
            1, tokens, torch.where(repeats & empty, kept, -infinity), "amax"
        )

    def _history(self, ctx: LogitsContext, longest: int, *, drafts: bool) -> torch.Tensor:
        """Return the tokens each row follows, ``[num_logits_rows, longest]``; after them, anything.

        This step's drafts are not in the history yet: they are the inputs of the rows before.
        """
        tokens = self._req_states.all_token_ids.gpu[:, :longest]
        tokens = tokens.index_select(0, ctx.expanded_idx_mapping).long()
        if not drafts:
            return tokens
        # 0 at a row's newest token, 1 at the one before
        age = ctx.pos.unsqueeze(1) - torch.arange(tokens.shape[1], device=self._device)
        row = torch.arange(len(tokens), device=self._device).unsqueeze(1) - age
        is_draft = (age >= 0) & (age < ctx.expanded_local_pos.unsqueeze(1))
        return torch.where(is_draft, ctx.input_ids[row.clamp(0, len(tokens) - 1)].long(), tokens)

    def _repeats(self, ctx: LogitsContext, tokens: torch.Tensor, longest_run: int) -> torch.Tensor:
        """Tell for each token whether the row's newest tokens are those before it, n - 1 of them.

        A placeholder, -1, is like no token.
        """
        size, with_prompt = self._on_device[:, ctx.expanded_idx_mapping].unsqueeze(2)
        prompt_len = self._req_states.prompt_len.gpu[ctx.expanded_idx_mapping].unsqueeze(1)
        begin = torch.where(with_prompt > 0, 0, prompt_len) + size - 1
        at, newest = torch.arange(tokens.shape[1], device=self._device), ctx.pos.unsqueeze(1)
        repeats = (size > 0) & (at >= begin) & (at <= newest)
        for back in range(longest_run - 1):
            token = tokens.gather(1, (newest - back).clamp(0, tokens.shape[1] - 1))
            # Where n is less than that of others, all of its run has been compared by now.
            same = ((tokens == token) & (token >= 0)) | (back >= size - 1)
            # Position by position, the token that is `back + 1` before
            repeats[:, back + 1 :] &= same[:, : -back - 1]
        return repeats
