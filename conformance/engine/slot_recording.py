# SPDX-License-Identifier: Apache-2.0
"""Recording what Model Runner V2 sends a slot logits processor.

The recording goes between the processor and vLLM's ``Sampler``, the only one that calls it, so it
serves engines and whatever else drives a ``Sampler``.
It has what the calls of the interface come to, as values that two drivers can be compared by.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import attrs
import torch

if TYPE_CHECKING:
    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext


@attrs.frozen
class Entered:
    """One call of ``add_request``."""

    name: str  #: of the request, which the plugin is not told
    slot: int
    prompt_len: int
    prefill_len: int
    #: A copy, made before the plugin ran, and what the plugin answered.
    params: SamplingParams = attrs.field(eq=False, repr=False)
    answer: object = attrs.field(eq=False, default=None)


@attrs.frozen
class Flushed:
    """One call of ``apply_staged_writes``."""


@attrs.frozen
class Row:
    """One row of logits, as the context and the states of the requests describe it."""

    name: str
    slot: int
    offset: int  #: its number among the rows of its request
    token: int  #: what the model was fed
    position: int  #: where that token stands in the sequence
    length: int  #: upper bound of the tokens that are visible
    prompt_len: int
    prefill_len: int
    tokens: tuple[int, ...]  #: all committed tokens of the request

    @property
    def unfinished(self) -> bool:
        """Whether the prefill goes on after this step, so that no token is taken from the row."""
        return self.position + 1 < self.prefill_len


@attrs.frozen
class Applied:
    """One call of ``apply``."""

    rows: tuple[Row, ...]
    slots: tuple[int, ...]  #: of the requests, in the order of the batch
    before: torch.Tensor = attrs.field(eq=False, repr=False)  #: ``[rows, vocabulary]``, float32
    after: object = attrs.field(eq=False, repr=False)  #: a copy of whatever the plugin returned


Event = Entered | Flushed | Applied


class SlotRecording:
    """Stands in for a processor in a ``Sampler`` and writes down what it is sent."""

    def __init__(self, plugin: Any, sampler: Any) -> None:  # noqa: ANN401 - vLLM's
        self.plugin = plugin
        self.events: list[Event] = []
        #: Slots without a request when the recording began, the next to be given away last:
        #: an engine that warms up with requests leaves them in some order.
        self.free = tuple(sampler.req_states.free_indices)
        self._sampler = sampler

    @classmethod
    def insert(cls, sampler: Any, plugin: type) -> SlotRecording:  # noqa: ANN401 - vLLM's
        """Put a recording around the instance of a class that a ``Sampler`` holds.

        Raises:
            LookupError: the sampler holds no instance of the class.

        """
        processors = sampler.logits_processors
        for index in reversed(range(len(processors))):
            if type(processors[index]) is plugin:
                processors[index] = recording = cls(processors[index], sampler)
                return recording
        raise LookupError(f"the sampler holds no instance of {plugin.__name__}")

    def remove(self) -> None:
        """Take the processor out of the sampler: what follows runs without it."""
        self._sampler.logits_processors.remove(self)

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> object:
        """Write the request down and pass it on."""
        states = self._sampler.req_states
        entered = Entered(
            str(states.index_to_req_id[req_idx]),
            int(req_idx),
            int(states.prompt_len.np[req_idx]),
            int(states.prefill_len.np[req_idx]),
            copy.deepcopy(sampling_params),
        )
        # Also when the plugin raises.
        self.events.append(entered)
        answer = self.plugin.add_request(req_idx, sampling_params)
        self.events[-1] = attrs.evolve(entered, answer=answer)
        return answer

    def apply_staged_writes(self) -> None:
        """Write the call down and pass it on."""
        self.events.append(Flushed())
        self.plugin.apply_staged_writes()

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> Any:  # noqa: ANN401 - whatever the plugin answers
        """Write the rows down, with their logits before and after the plugin."""
        rows, slots = self._rows(ctx), tuple(ctx.idx_mapping_np.tolist())
        before = logits.clone()
        after = self.plugin.apply(logits, ctx)  # where it raises, there is nothing to judge
        kept = after.clone() if isinstance(after, torch.Tensor) else after
        self.events.append(Applied(rows, slots, before, kept))
        return after

    def _rows(self, ctx: LogitsContext) -> tuple[Row, ...]:
        states = self._sampler.req_states
        slots = ctx.idx_mapping_np.tolist()
        # Full CUDA graphs pad the batch: zeros follow the lengths of its requests.
        lengths = dict(zip(slots, ctx.seq_lens_upper_bound_np.tolist(), strict=False))
        columns = (ctx.expanded_idx_mapping, ctx.expanded_local_pos, ctx.input_ids, ctx.pos)
        return tuple(
            Row(
                name=str(states.index_to_req_id[slot]),
                slot=slot,
                offset=offset,
                token=token,
                position=position,
                length=lengths[slot],
                prompt_len=int(states.prompt_len.np[slot]),
                prefill_len=int(states.prefill_len.np[slot]),
                tokens=tuple(states.all_token_ids.gpu[slot, : states.total_len.gpu[slot]].tolist()),
            )
            for slot, offset, token, position in zip(
                *(column.tolist() for column in columns), strict=True
            )
        )
