# SPDX-License-Identifier: Apache-2.0
"""What is written for request-level callables that ``AdapterLogitsProcessor`` wraps."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import AdapterLogitsProcessor as Batch
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotLogitsProcessor

if TYPE_CHECKING:
    import torch
    from vllm.config import VllmConfig
    from vllm.sampling_params import SamplingParams
    from vllm.v1.sample.logits_processor import BatchUpdate, RequestLogitsProcessor
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
        device = device_or_requests.device
        self._batch = Batch(vllm_config, device, device.type == "cuda")
        self._states = device_or_requests
        self._by_slot: dict[int, _Request] = {}

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Refuse bad parameters with ``ValueError``; both runners ask the same way."""
        Batch.validate_params(sampling_params)

    # What the V1 runner calls

    def is_argmax_invariant(self) -> bool:
        """Tell whether greedy requests can be served without it."""
        return bool(self._batch.is_argmax_invariant())

    def new_req_logits_processor(self, params: SamplingParams) -> RequestLogitsProcessor | None:
        """Return the callable of a request, None where it needs none."""
        return self._batch.new_req_logits_processor(params)

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Follow requests from row to row."""
        self._batch.update_state(batch_update)

    # What Model Runner V2 calls

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Make the callable of the request in a slot; tell whether its rows may be changed."""
        self._by_slot.pop(req_idx, None)
        function = self._batch.new_req_logits_processor(sampling_params)
        if function:
            self._by_slot[req_idx] = _Request(function)
        return bool(function)

    # What both call

    def apply(self, logits: torch.Tensor, ctx: LogitsContext | None = None) -> torch.Tensor:
        """Change logits ``[rows, vocab_size]``: a row for each request, and for each draft.

        To do: this reads tokens back from the device in every step, which waits for it, and
        calls Python for every row. State in tensors by slot makes both unnecessary.
        """
        if ctx is None:
            return self._batch.apply(logits)
        if self._by_slot:
            places = zip(
                ctx.expanded_idx_mapping.tolist(),
                ctx.pos.tolist(),
                ctx.expanded_local_pos.tolist(),
                strict=True,
            )
            for row, (slot, last, drafts) in enumerate(places):
                if request := self._by_slot.get(slot):
                    # This step's drafts are no outputs yet; they came in with the rows before.
                    drafted = ctx.input_ids[row + 1 - drafts : row + 1].tolist()
                    self._serve(request, slot, last + 1 - drafts, drafted, logits[row])
        return logits

    def _serve(
        self, request: _Request, slot: int, length: int, drafts: list[int], row: torch.Tensor
    ) -> None:
        """Have one row ``[vocab_size]`` changed after ``length`` tokens and this step's drafts."""
        tokens = self._states.all_token_ids.gpu[slot]
        prompt_len = int(self._states.prompt_len.np[slot])
        if not request.prompt:
            request.prompt += tokens[:prompt_len].tolist()
        request.outputs += tokens[prompt_len + len(request.outputs) : length].tolist()
        count = len(request.outputs)
        request.outputs += drafts
        changed = request(row)
        del request.outputs[count:]
        if changed is not row:
            row.copy_(changed)


class _Request:
    """A request's callable, and the tokens it is handed: the same lists at every step."""

    def __init__(self, function: RequestLogitsProcessor) -> None:
        self.function = function
        self.prompt: list[int] = []
        self.outputs: list[int] = []
        # As AdapterLogitsProcessor finds out who wants the prompt.
        with_prompt = len(inspect.signature(function).parameters) == 3  # noqa: PLR2004 - with the prompt, the outputs and the row
        self._lists = (self.prompt, self.outputs) if with_prompt else (self.outputs,)

    def __call__(self, row: torch.Tensor) -> torch.Tensor:
        return self.function(*self._lists, row)
