# SPDX-License-Identifier: Apache-2.0
"""The part of vLLM that a batch logits processor meets, without an engine.

Rows, moves, swaps and ``BatchUpdate`` objects come from vLLM's own ``InputBatch`` and reorder
function, in the order in which ``GPUModelRunner._update_states`` calls them;
nothing of the host is modelled here, so the simulator cannot drift from it.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import attrs
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.attention.backends.utils import reorder_batch_to_split_decodes_and_prefills
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, LogitsProcessors
from vllm.v1.sample.sampler import Sampler
from vllm.v1.worker.gpu_input_batch import CachedRequestState, InputBatch

from conformance.logits.calls import watchers
from conformance.logits.configuration import BLOCK_SIZE, MAX_MODEL_LEN, MAX_REQUESTS

CPU = torch.device("cpu")

#: References to a list that only the host has: its own, and the argument of the question.
_OWN_REFERENCES = 2


@attrs.frozen
class Joining:
    """A request that the scheduler hands to the model runner for the first time."""

    name: str
    prompt: list[int]
    params: SamplingParams


class _Recorder(LogitsProcessor):
    """Sees each ``BatchUpdate`` before the plugin does."""

    def __init__(self) -> None:
        self.update: BatchUpdate | None = None

    def is_argmax_invariant(self) -> bool:
        return True  # this list is updated first

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        self.update = batch_update

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        return logits


def _older_arguments() -> dict[str, Any]:
    """Return what ``InputBatch`` of this release has to be told and vLLM 0.32 finds out itself."""
    asked = inspect.signature(InputBatch).parameters
    older = {"kernel_block_sizes": [BLOCK_SIZE], "pin_memory": False}
    return {name: value for name, value in older.items() if name in asked}


@attrs.define
class Host:
    """One persistent batch with one plugin, advanced a step at a time."""

    plugin: LogitsProcessor
    vocabulary: int
    reorder: bool = False
    asynchronous: bool = False
    #: The engine found the plugin by its entry point, and was not given its class or name: then,
    #: unless a request in the batch has penalties or bad words, nobody is known to need outputs,
    #: the placeholders of asynchronous scheduling are never replaced, and lists hold them in
    #: ``apply``, too.  In all other engines ``update_async_output_token_ids`` has replaced them.
    entry_point: bool = False
    invariant: bool = False  #: what the plugin claimed when the engine asked
    #: Whether new requests get the lists of those that are gone, as :meth:`_made` says.
    reuses: bool = True
    others: Sequence[LogitsProcessor] = ()  #: vLLM's own, which stand before the plugin
    requests: dict[str, CachedRequestState] = attrs.field(init=False, factory=dict)
    #: Output tokens as the scheduler knows them: real ids, never placeholders.
    outputs: dict[str, list[int]] = attrs.field(init=False, factory=dict)
    batch: InputBatch = attrs.field(init=False)
    #: Tokens computed in the current step, for each request in the batch.
    scheduled: dict[str, int] = attrs.field(init=False, factory=dict)
    #: Requests of the current step whose keys and values were to be loaded, and are lost.
    lost: frozenset[str] = attrs.field(init=False, default=frozenset())
    _recorder: _Recorder = attrs.field(init=False, factory=_Recorder)
    #: Output lists of requests that are gone, and their prompts.
    _gone: list[list[int]] = attrs.field(init=False, factory=list)
    _gone_prompts: list[list[int]] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        """Make an empty batch around the plugin."""
        processors = LogitsProcessors()
        processors.argmax_invariant.append(self._recorder)
        for other in self.others:
            claims = other.is_argmax_invariant()
            (processors.argmax_invariant if claims else processors.non_argmax_invariant).append(
                other
            )
        group = processors.argmax_invariant if self.invariant else processors.non_argmax_invariant
        group.append(self.plugin)
        self.batch = InputBatch(
            max_num_reqs=MAX_REQUESTS,
            max_model_len=MAX_MODEL_LEN,
            max_num_batched_tokens=MAX_REQUESTS * MAX_MODEL_LEN,
            device=CPU,
            vocab_size=self.vocabulary,
            block_sizes=[BLOCK_SIZE],
            max_num_blocks_per_req=[-(-MAX_MODEL_LEN // BLOCK_SIZE)],
            logitsprocs=processors,
            # As GPUModelRunner.__init__: bool(custom_logitsprocs), those given to the engine.
            logitsprocs_need_output_token_ids=not self.entry_point,
            **_older_arguments(),
        )

    @property
    def update(self) -> BatchUpdate | None:
        """The ``BatchUpdate`` of the current step."""
        return self._recorder.update

    def schedule(
        self,
        *,
        finish: Sequence[str] = (),
        join: Sequence[Joining] = (),
        pause: Sequence[str] = (),
        chunk: Mapping[str, int] | None = None,
        lost: Sequence[str] = (),
        scheduled: Mapping[str, int] | None = None,
        computed: Mapping[str, int] | None = None,
    ) -> None:
        """Update the batch for a step, up to and including the plugin's ``update_state``.

        Follows ``GPUModelRunner._update_states``: finished out, unscheduled out,
        new then resumed in, condense, reorder, refresh.

        Args:
            finish: requests that are gone.
            join: requests that are new.
            pause: requests that are not scheduled in this step, and preempted.
            chunk: tokens to compute, where fewer than the whole prefill.
            lost: of those that are new or resumed, the requests whose keys and values are loaded
                from elsewhere, all but for the last token, and prove to be lost.
            scheduled: instead of ``pause`` and ``chunk``: tokens to compute for every request.
            computed: tokens computed before, where a scheduler says so.

        """
        batch = self.batch
        self._recorder.update = None  # it holds the lists of those that were added
        for name in finish:
            if (gone := self.requests.pop(name, None)) is not None:
                self._gone.append(gone.output_token_ids)
                self._gone_prompts.append(gone.prompt_token_ids)
            self.outputs.pop(name, None)
            batch.remove_request(name)
        scheduled = self.scheduled = (
            self._schedule(join, pause, {**(chunk or {}), **dict.fromkeys(lost, 1)})
            if scheduled is None
            else dict(scheduled)
        )
        for name in [name for name in batch.req_id_to_index if name not in scheduled]:
            batch.remove_request(name)
            self.requests[name].num_computed_tokens = 0
        adding = [self._new(request) for request in join]
        new = {request.name for request in join}
        for name in scheduled:
            state = self.requests[name]
            if computed and name in computed:
                state.num_computed_tokens = computed[name]
            self._take_back(name)
            if (row := batch.req_id_to_index.get(name)) is not None:
                batch.num_computed_tokens_cpu[row] = state.num_computed_tokens
            elif name not in new:
                if self.asynchronous and self.outputs[name]:
                    # The runner recovers real ids for a resumed request, in a fresh list.
                    state.output_token_ids = list(self.outputs[name])
                adding.append(state)
        self.lost = frozenset(lost)
        self._add(adding)
        batch.condense()
        if self.reorder and scheduled:
            reorder_batch_to_split_decodes_and_prefills(
                batch, SimpleNamespace(num_scheduled_tokens=scheduled)
            )
        batch.refresh_metadata()

    def sample(self, logits: torch.Tensor) -> None:
        """Run vLLM's own sampler over logits ``[rows, vocabulary]``; it may call the plugin."""
        # On a CPU vLLM's choice of a token is compiled, which takes longer than all examples.
        with torch.inference_mode(), torch.compiler.set_stance("force_eager"):
            _sampler()(logits, self.batch.sampling_metadata)

    def samples(self, name: str) -> bool:
        """Tell whether this step ends a request's prefill, so that its row is sampled from."""
        state = self.requests[name]
        return bool(state.num_computed_tokens + self.scheduled[name] >= state.num_tokens)

    def keeps(self, name: str) -> bool:
        """Tell whether a request keeps the token that this step samples for it."""
        return self.samples(name) and name not in self.lost

    def complete(self, choose: Callable[[int], int]) -> list[str]:
        """Finish a step: append the token that ``choose(row)`` gives for each finished prefill.

        Follows ``GPUModelRunner._bookkeeping_sync``; the samples of unfinished prefills are
        discarded.  Whether keys and values were loaded is known after that: a lost request has
        its token in the list, and the scheduler, which does not count it, starts again
        (``Scheduler._handle_invalid_blocks``, policy ``recompute``).

        Returns:
            The requests that got a token, and keep it.

        """
        batch = self.batch
        sampled: list[str] = []
        ids = [0] * batch.num_reqs
        for row, name in enumerate(batch.req_ids):
            state = self.requests[name]
            samples = self.samples(name)
            state.num_computed_tokens += self.scheduled[name]
            if not samples:
                continue
            token = choose(row)
            ids[row] = token
            end = int(batch.num_tokens_no_spec[row])
            batch.token_ids_cpu[row, end] = token
            batch.is_token_ids[row, end] = True
            batch.num_tokens_no_spec[row] = end + 1
            state.output_token_ids.append(-1 if self.asynchronous else token)
            if name in self.lost:
                state.num_computed_tokens = 0
                continue
            self.outputs[name].append(token)
            sampled.append(name)
        if self.asynchronous:
            batch.prev_req_id_to_index = {name: batch.req_id_to_index[name] for name in sampled}
            tokens = torch.tensor(ids, dtype=torch.int32).unsqueeze(-1)
            batch.set_async_sampled_token_ids(tokens, _ARRIVED)
        return sampled

    def _add(self, states: Sequence[CachedRequestState]) -> None:
        for state in states:
            if state.req_id in self.lost:
                state.num_computed_tokens = state.num_tokens - 1
            self.batch.add_request(state)

    def _take_back(self, name: str) -> None:
        """Take back the tokens that the scheduler does not count, as ``_update_states`` does.

        That is before ``update_state``, and the token came after ``apply``: a plugin never sees
        it.  What it does see is that a row is computed for the same outputs again.

        With asynchronous scheduling nothing is taken back: ``Scheduler._handle_invalid_blocks``
        leaves the placeholders that it counts, so the runner keeps a token that no client gets.
        Histories have no failed loads there, for vLLM itself is wrong.
        """
        state, count = self.requests[name], len(self.outputs[name])
        if count < len(state.output_token_ids):
            del state.output_token_ids[count:]
            if (row := self.batch.req_id_to_index.get(name)) is not None:
                self.batch.num_tokens_no_spec[row] = self.batch.num_prompt_tokens[row] + count

    def _new(self, request: Joining) -> CachedRequestState:
        prompt = self._made(request.prompt, self._gone_prompts)
        outputs = self._made((), self._gone)
        state = self.requests[request.name] = _state(request, prompt, outputs)
        self.outputs[request.name] = []
        return state

    def _made(self, tokens: Sequence[int], gone: list[list[int]]) -> list[int]:
        """Return a list: one of a request that is gone, where only the host still has it.

        CPython makes new lists where others have just been freed.  Whoever knows a request by
        ``id(output_token_ids)`` then takes it for another; this is the same without the luck.
        """
        for index in range(len(gone) if self.reuses else 0):
            if sys.getrefcount(gone[index]) <= _OWN_REFERENCES + watchers():
                reused = gone.pop(index)
                reused[:] = tokens
                return reused
        return list(tokens)

    def _schedule(
        self, join: Sequence[Joining], pause: Sequence[str], chunk: Mapping[str, int]
    ) -> dict[str, int]:
        scheduled: dict[str, int] = {}
        for name, state in self.requests.items():
            if name not in pause:
                computed = state.num_computed_tokens if name in self.batch.req_id_to_index else 0
                total = state.num_prompt_tokens + len(self.outputs[name])
                scheduled[name] = chunk.get(name, max(1, total - computed))
        for request in join:
            scheduled[request.name] = chunk.get(request.name, len(request.prompt))
        return scheduled


@cache
def _sampler() -> Sampler:
    return Sampler()


#: Stands for the event after which sampled ids have reached the CPU; here they always have.
_ARRIVED: Any = SimpleNamespace(synchronize=lambda: None)


def _state(request: Joining, prompt: list[int], outputs: list[int]) -> CachedRequestState:
    return CachedRequestState(
        req_id=request.name,
        prompt_token_ids=prompt,
        mm_features=[],
        sampling_params=request.params,
        generator=None,
        block_ids=(list(range(-(-MAX_MODEL_LEN // BLOCK_SIZE))),),
        num_computed_tokens=0,
        output_token_ids=outputs,
    )
