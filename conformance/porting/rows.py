# SPDX-License-Identifier: Apache-2.0
"""What is written for a batch logits processor that follows its rows by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import BatchUpdate, MoveDirectionality
from vllm.v1.sample.logits_processor import LogitsProcessor as Batch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotLogitsProcessor

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState


class Ported(Batch, SlotLogitsProcessor):
    """``Batch``, for either model runner; vLLM chooses one."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        device_or_requests: torch.device | LogitsProcRequestState,
        *is_pin_memory: bool,
    ) -> None:
        # The V1 runner passes device and is_pin_memory, Model Runner V2 its requests.
        if is_pin_memory:
            self._batch = Batch(vllm_config, device_or_requests, *is_pin_memory)
            return
        if vllm_config.speculative_config is not None:
            raise ValueError("Batch has no rows for drafts: it needs speculative decoding off")
        device = device_or_requests.device
        self._batch = Batch(vllm_config, device, device.type == "cuda")
        self._rows = _Rows(self._batch, device_or_requests)

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad parameters with ``ValueError``; both runners ask the same way."""
        Batch.validate_params(sampling_params)

    # What the V1 runner calls

    def is_argmax_invariant(self) -> bool:
        """Tell whether greedy requests can be served without it."""
        return bool(self._batch.is_argmax_invariant())

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        self._batch.update_state(batch_update)

    # What Model Runner V2 calls

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Take note of the request in a slot.

        To do: return False for requests whose rows are never changed. Batches of such requests
        alone are then sampled without this class.
        """
        self._rows.join(req_idx, sampling_params)
        return True

    # What both call

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        """Change logits ``[requests, vocab_size]``, a row for each request of the step."""
        if ctx is not None and not self._rows.follow(ctx):
            return logits
        return self._batch.apply(logits)


class _Request:
    """A request as the V1 model runner tells of it; the list of its outputs grows."""

    def __init__(self, params: SamplingParams) -> None:
        self.params = params
        self.prompt: list[int] = []
        self.outputs: list[int] = []


class _Rows:
    """Tells a batch logits processor of the requests of each step, as the V1 runner does.

    To do: this reads the new tokens of every request back from the device in every step, which
    waits for it. State in tensors by slot, and tokens read from ``all_token_ids`` on the device,
    make that unnecessary.
    """

    def __init__(self, batch: Batch, states: LogitsProcRequestState) -> None:
        self._batch = batch
        self._states = states
        self._by_slot: dict[int, _Request] = {}
        self._rows: list[_Request] = []  #: the batch as it was told

    def join(self, slot: int, params: SamplingParams) -> None:
        """Let a request have a slot, whoever had it before."""
        self._by_slot[slot] = _Request(params)

    def follow(self, ctx: LogitsContext) -> bool:
        """Tell of the step's rows; return False for rows of no request, as in vLLM's warm-up."""
        slots = ctx.idx_mapping_np.tolist()
        if any(slot not in self._by_slot for slot in slots):
            return False
        now = [self._by_slot[slot] for slot in slots]
        for slot, request, last in zip(slots, now, ctx.pos.tolist(), strict=True):
            self._read(slot, request, last + 1)
        self._batch.update_state(self._update(now))
        return True

    def _read(self, slot: int, request: _Request, length: int) -> None:
        """Bring a request's tokens up to date; its prompt is whole when its first row comes."""
        tokens = self._states.all_token_ids.gpu[slot]
        prompt_len = int(self._states.prompt_len.np[slot])
        if not request.prompt:
            request.prompt = tokens[:prompt_len].tolist()
        request.outputs += tokens[prompt_len + len(request.outputs) : length].tolist()

    def _update(self, now: list[_Request]) -> BatchUpdate | None:
        """Return what makes the last step's rows this step's, None where they are the same."""
        rows, here, there = list(self._rows), set(now), set(self._rows)
        self._rows = now
        if rows == now:
            return None
        free = [row for row, request in enumerate(rows) if request not in here]
        added, moved = [], []
        for request in now:
            if request not in there:
                row = free.pop(0) if free else len(rows)
                rows[row : row + 1] = [request]
                added.append((row, request.params, request.prompt, request.outputs))
        removed = free[::-1]
        while free:
            if free[-1] == len(rows) - 1:  # the last row goes with its request
                free.pop()
                rows.pop()
                continue
            moved.append((len(rows) - 1, free[0], MoveDirectionality.UNIDIRECTIONAL))
            rows[free.pop(0)] = rows.pop()
        for row, request in enumerate(now):
            other = rows.index(request)
            if other != row:
                moved.append((row, other, MoveDirectionality.SWAP))
                rows[row], rows[other] = rows[other], rows[row]
        return BatchUpdate(len(now), removed, added, moved)
