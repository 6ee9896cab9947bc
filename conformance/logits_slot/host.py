# SPDX-License-Identifier: Apache-2.0
"""The part of Model Runner V2 that a slot logits processor meets, without an engine.

Slots, staged writes, the order of rows and the stages of the sampler are vLLM's own
(``RequestState``, ``Sampler``, ``sort_batch_req_ids`` and the functions that prepare a batch),
called in the order in which ``GPUModelRunner.execute_model`` calls them.
Only Triton kernels are replaced where no GPU runs them: :mod:`conformance.engine.kernels`.

No keys and values fail to load here.  Where they do, the runner is told to start again, and takes
nothing back: ``GPUModelRunner.update_requests`` changes the number of computed tokens on the CPU
alone, so the rows that follow are of positions that the request does not have
(vllm-project/vllm#49250).
Nor is a sampled token ever a placeholder: ``post_update`` has written it to ``all_token_ids``
before the next step's ``apply`` reads it, both on the device.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import numpy as np
import torch

from conformance.engine import kernels
from conformance.logits.calls import note
from conformance.logits.configuration import MAX_MODEL_LEN, MAX_REQUESTS, vllm_config

kernels.install()

from vllm.config import set_current_vllm_config  # noqa: E402 - after what replaces CUDA on CPU
from vllm.v1.worker.gpu.input_batch import (  # noqa: E402 - as above
    InputBuffers,
    combine_sampled_and_draft_tokens,
    expand_idx_mapping,
    post_update,
    prepare_pos_seq_lens,
    prepare_prefill_inputs,
)
from vllm.v1.worker.gpu.model_runner import sort_batch_req_ids  # noqa: E402 - as above
from vllm.v1.worker.gpu.sample.sampler import Sampler  # noqa: E402 - as above
from vllm.v1.worker.gpu.states import RequestState  # noqa: E402 - as above

from conformance.inputs.history import MOST_DRAFTS  # noqa: E402 - as above

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from vllm.sampling_params import SamplingParams
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

CPU = torch.device("cpu")

MAX_BATCHED_TOKENS = MAX_REQUESTS * MAX_MODEL_LEN

#: What stands for a draft in a step that starts within the prefill: nothing was guessed yet.
PLACEHOLDER = -1


def request_states(
    vocabulary: int, max_requests: int = MAX_REQUESTS, length: int = MAX_MODEL_LEN
) -> RequestState:
    """Return the states of an engine without requests, which have so many tokens at the most."""
    return RequestState(
        max_num_reqs=max_requests,
        max_model_len=length,
        max_num_batched_tokens=max_requests * length,
        num_speculative_steps=MOST_DRAFTS,
        vocab_size=vocabulary,
        device=CPU,
    )


def joining(
    states: RequestState,
    slot: int,
    params: SamplingParams,
    prompt: Sequence[int],
    outputs: Sequence[int],
) -> None:
    """Tell whoever observes that a request is about to be added."""
    note(
        "join",
        states,
        slot=slot,
        params=params,
        prompt=list(prompt),
        outputs=list(outputs),
    )


@attrs.frozen
class Joining:
    """A request that the scheduler hands to the model runner: new, or resumed with its outputs."""

    name: str
    prompt: Sequence[int]
    outputs: Sequence[int]
    params: SamplingParams


@attrs.frozen
class Rows:
    """The rows of logits of one step, as the sampler is told of them."""

    names: tuple[str, ...]  #: requests in the order of the batch
    starts: tuple[int, ...]  #: first row of each request, and the end
    drafts: Mapping[str, tuple[int, ...]]  #: tokens that are verified
    slots: torch.Tensor  #: ``[requests]``
    slots_np: np.ndarray  #: ``[requests]``
    row_slots: torch.Tensor  #: ``[rows]``
    offsets: torch.Tensor  #: ``[rows]``: the row's number within its request
    tokens: torch.Tensor  #: ``[rows]``: what the model was fed
    positions: torch.Tensor  #: ``[rows]``
    lengths_np: np.ndarray  #: ``[requests]``: upper bound of the tokens that are visible
    queries: torch.Tensor  #: ``[requests + 1]``

    def of(self, position: int) -> range:
        """Return the rows of the request at a position of the batch."""
        return range(self.starts[position], self.starts[position + 1])


@attrs.define
class Host:
    """Model Runner V2 with one plugin, advanced a step at a time."""

    states: RequestState
    plugin: LogitsProcessor
    model: str
    drafts: int = 0  #: tokens that speculative decoding guesses in a step, at most
    #: Whether steps are ordered before the scheduler hears what the one before rejected, as with
    #: async scheduling.
    early: bool = False
    params: dict[str, SamplingParams] = attrs.field(init=False, factory=dict)
    prompts: dict[str, tuple[int, ...]] = attrs.field(init=False, factory=dict)
    outputs: dict[str, list[int]] = attrs.field(init=False, factory=dict)
    #: Running requests, in the scheduler's order.
    running: list[str] = attrs.field(init=False, factory=list)
    #: Tokens that the current step computes.
    scheduled: dict[str, int] = attrs.field(init=False, factory=dict)
    sampler: Sampler = attrs.field(init=False)
    #: Drafts that the newest step rejected.
    _rejected: dict[str, int] = attrs.field(init=False, factory=dict)
    _buffers: InputBuffers = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        """Make the sampler around the plugin."""
        config = vllm_config(self.model)
        with set_current_vllm_config(config):
            self.sampler = Sampler(
                config,
                self.states.max_num_reqs,
                self.states.vocab_size,
                CPU,
                self.states,
                num_speculative_tokens=max(1, self.drafts),
                custom_logits_processors=[self.plugin],
            )
        self._buffers = InputBuffers(self.states.max_num_reqs, MAX_BATCHED_TOKENS, CPU)

    def slot(self, name: str) -> int:
        """Return the slot of a request."""
        return int(self.states.req_id_to_index[name])

    def schedule(
        self,
        *,
        finish: Sequence[str] = (),
        pause: Sequence[str] = (),
        join: Sequence[Joining] = (),
        rest: Sequence[str] = (),
        chunk: Mapping[str, int] | None = None,
        scheduled: Mapping[str, int] | None = None,
    ) -> None:
        """Update the states for a step, up to and including the plugin's ``apply_staged_writes``.

        Follows ``finish_requests``, ``add_requests`` and ``update_requests`` of
        ``GPUModelRunner``.

        Args:
            finish: requests that are gone.
            pause: requests that are preempted.
            join: requests that are new, or resumed.
            rest: requests that keep their slot and are not scheduled.
            chunk: tokens to compute, where fewer than the whole prefill.
            scheduled: instead of ``rest`` and ``chunk``: tokens to compute, in the scheduler's
                order.

        """
        states = self.states
        for name in sorted({*finish, *pause}):
            states.remove_request(name)
            self.running.remove(name)
            self._rejected.pop(name, None)
            if name in finish:
                for kept in (self.params, self.prompts, self.outputs):
                    del kept[name]
        for request in join:
            self.running.append(request.name)
            self.params[request.name] = request.params
            self.prompts[request.name] = tuple(request.prompt)
            self.outputs.setdefault(request.name, list(request.outputs))
            states.add_request(
                request.name,
                len(request.prompt),
                [*request.prompt, *request.outputs],
                0,
                # A server asks for no more than there is room for, and the runner has 32 bits.
                min(request.params.max_tokens or 1, MAX_MODEL_LEN),
            )
            joining(
                states, self.slot(request.name), request.params, request.prompt, request.outputs
            )
            with torch.inference_mode():
                self.sampler.add_request(self.slot(request.name), request.params)
        with torch.inference_mode():
            if join:
                states.apply_staged_writes()
            note("begin", states)
            self.sampler.apply_staged_writes()
        np.minimum(
            states.num_computed_tokens_np,
            states.prefill_len.np,
            out=states.num_computed_prefill_tokens,
        )
        chunk = chunk or {}
        self.scheduled = {
            name: chunk.get(name, max(1, self.remaining(name)))
            for name in self.running
            if name not in rest
        }
        if scheduled is not None:
            self.scheduled = dict(scheduled)

    def remaining(self, name: str) -> int:
        """Return how many tokens of a request's prefill are to be computed."""
        slot = self.slot(name)
        return int(self.states.prefill_len.np[slot] - self.states.num_computed_tokens_np[slot])

    def samples(self, name: str) -> bool:
        """Tell whether this step gets to the end of a request's prefill, or beyond."""
        return self.scheduled[name] >= self.remaining(name)

    def prepare(self, drafts: Mapping[str, Sequence[int]]) -> Rows:
        """Prepare the inputs of a step; ``drafts`` are the guesses that it verifies.

        In a step that starts within a request's prefill guesses are placeholders.
        Follows ``GPUModelRunner.prepare_inputs`` and, with drafts, ``RejectionSampler``.
        """
        states, buffers = self.states, self._buffers
        verified: dict[str, tuple[int, ...]] = {
            name: tuple(guessed) if self.remaining(name) <= 0 else (PLACEHOLDER,) * len(guessed)
            for name, guessed in drafts.items()
            if guessed and name in self.scheduled and self.samples(name)
        }
        scheduled = {
            name: count + len(verified.get(name, ())) for name, count in self.scheduled.items()
        }
        names = sort_batch_req_ids(scheduled, dict(verified), 1 + self.drafts)
        for name, guessed in verified.items():
            states.draft_tokens[self.slot(name), : len(guessed)] = torch.tensor(guessed)
        slots_np = np.array([self.slot(name) for name in names], dtype=np.intp)
        slots = torch.from_numpy(slots_np)
        counts = np.array([scheduled[name] for name in names], dtype=np.int32)
        queries_np = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
        rows_np = np.array([1 + len(verified.get(name, ())) for name in names], dtype=np.int32)
        starts_np = np.concatenate(([0], np.cumsum(rows_np))).astype(np.int32)
        queries, starts = torch.from_numpy(queries_np), torch.from_numpy(starts_np)
        total = int(starts_np[-1])
        if verified:
            row_slots, offsets = expand_idx_mapping(slots, total, starts, 1 + MOST_DRAFTS)
        else:
            row_slots, offsets = slots, torch.zeros(total, dtype=torch.int32)
        prepare_prefill_inputs(
            buffers.input_ids,
            states.next_prefill_tokens,
            slots,
            queries,
            states.all_token_ids.gpu,
            states.prefill_len.gpu,
            states.num_computed_tokens.gpu,
        )
        prepare_pos_seq_lens(
            slots, queries, states.num_computed_tokens.gpu, buffers.positions, buffers.seq_lens
        )
        indices = combine_sampled_and_draft_tokens(
            buffers.input_ids,
            slots,
            states.last_sampled_tokens,
            queries,
            buffers.seq_lens[: len(names)],
            states.prefill_len.gpu,
            states.draft_tokens,
            starts,
            total,
        )
        tokens, positions = buffers.input_ids[indices], buffers.positions[indices]
        if verified:
            # As vllm.v1.worker.gpu.spec_decode.rejection_sampler._gather_draft_sampled_kernel.
            early = positions - offsets < states.prefill_len.gpu[row_slots]
            tokens = tokens.masked_fill((offsets > 0) & early, PLACEHOLDER)
        return Rows(
            tuple(names),
            tuple(starts_np.tolist()),
            verified,
            slots,
            slots_np,
            row_slots,
            offsets,
            tokens,
            positions,
            self._bounds(names, states.num_computed_tokens_np[slots_np] + counts),
            queries,
        )

    def _bounds(self, names: Sequence[str], lengths: np.ndarray) -> np.ndarray:
        """Return what the scheduler takes for the lengths: it may count rejected drafts still."""
        if not self.early:
            return lengths
        unheard = np.array([self._rejected.get(name, 0) for name in names], dtype=np.int32)
        return np.minimum(lengths + unheard, MAX_MODEL_LEN).astype(np.int32)

    def process(self, logits: torch.Tensor, rows: Rows, parts: int = 1) -> None:
        """Send logits ``[rows, vocabulary]`` through the stages of vLLM's sampler.

        Requests are cut into ``parts``, as where the logits of a step are larger than a gibibyte.
        """
        size = -(-len(rows.names) // parts)
        for start in range(0, len(rows.names), size):
            end = min(start + size, len(rows.names))
            part = slice(rows.starts[start], rows.starts[end])
            with torch.inference_mode():
                self.sampler.apply_sampling_params(
                    logits[part],
                    rows.row_slots[part],
                    rows.slots[start:end],
                    rows.slots_np[start:end],
                    rows.positions[part],
                    rows.tokens[part],
                    rows.offsets[part],
                    rows.lengths_np[start:end],
                    skip_top_k_top_p=True,
                )

    def complete(self, rows: Rows, choose: Callable[[int], Sequence[int]]) -> None:
        """Finish a step: append the tokens that ``choose(position)`` gives for each request.

        They are empty for an unfinished prefill; drafts that were accepted come first.
        """
        states = self.states
        sampled = torch.zeros((len(rows.names), 1 + MOST_DRAFTS), dtype=torch.int64)
        counts = torch.zeros(len(rows.names), dtype=torch.int32)
        rejected = torch.zeros(len(rows.names), dtype=torch.int32)
        computed = np.diff(rows.queries.numpy()).astype(np.int32)
        for position, name in enumerate(rows.names):
            tokens = list(choose(position)) if self.samples(name) else []
            if tokens:
                sampled[position, : len(tokens)] = torch.tensor(tokens)
                counts[position] = len(tokens)
                rejected[position] = len(rows.of(position)) - len(tokens)
                note("append", states, slot=self.slot(name), tokens=tokens)
            self.outputs[name] += tokens
        post_update(
            rows.slots,
            states.num_computed_tokens.gpu,
            states.last_sampled_tokens,
            self.sampler.penalties_state.output_bin_counts,
            sampled,
            counts,
            rejected,
            rows.queries,
            states.all_token_ids.gpu,
            states.total_len.gpu,
        )
        states.num_computed_tokens_np[rows.slots_np] += computed - rejected.numpy()
        self._rejected = dict(zip(rows.names, rejected.tolist(), strict=True))
