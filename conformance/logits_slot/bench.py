# SPDX-License-Identifier: Apache-2.0
"""What a slot plugin is tried out on: its class, request states, and watched calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

import attrs
import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsContext,
    LogitsProcessor,
    LogitsProcRequestState,
)
from vllm.v1.worker.gpu.states import RequestState

from conformance.inputs.history import MOST_DRAFTS, Choice
from conformance.logits.calls import PluginMisshapen, PluginRaised, call, misshapen, note
from conformance.logits.configuration import MAX_MODEL_LEN, MAX_REQUESTS, vllm_config
from conformance.logits.construction import Construction
from conformance.logits.requests import Stock
from conformance.logits_slot.host import joining, request_states

#: Fields of the states that plugins may read.
READ = ("all_token_ids", "prompt_len", "prefill_len", "total_len")

#: Tensors of the context.
_CONTEXT = ("expanded_idx_mapping", "idx_mapping", "expanded_local_pos", "input_ids", "pos")
_CONTEXT_ARRAYS = ("idx_mapping_np", "seq_lens_upper_bound_np")


class PluginAnswered(PluginMisshapen):
    """``add_request`` answered with something else than the interface says."""

    def __init__(self, answer: object) -> None:
        super().__init__(f"add_request returned {answer!r}, not a bool")
        self.error: str | None = None  #: the type of what the engine's step raises with it
        try:
            # As vLLM's sampler does with the answers of all processors.
            _ = False | answer  # type: ignore[operator]  # any value
        except Exception as error:  # noqa: BLE001 - whatever the value raises
            self.error = type(error).__name__


class PluginWrote(PluginMisshapen):
    """The plugin wrote to what it may only read."""

    def __init__(self, where: str) -> None:
        super().__init__(f"the plugin wrote to {where}")
        self.where = where


class Watched(LogitsProcessor):
    """A plugin as the model runner sees it: every call goes through :func:`call`.

    Engines run their steps under ``torch.inference_mode``.
    """

    def __init__(
        self,
        plugin: LogitsProcessor,
        states: RequestState,
        *,
        trusted: bool = False,
        speculative: bool = False,
    ) -> None:
        self.plugin = plugin
        self.states = states
        #: Whether the engine has speculative decoding.
        self.speculative = speculative
        #: Whether nobody looks if the plugin writes to what it may only read: that takes time.
        self.trusted = trusted
        #: Watches the tensors of the engine while ``apply`` runs, and what it saw.
        self.watching: Callable[[list[torch.Tensor]], Any] | None = None
        self.waited: list[str] = []
        #: What the plugin said about the request in each slot.
        self.answers: dict[int, bool] = {}

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:
        """Pass a request on.

        Raises:
            PluginAnswered: the answer is neither true nor false.

        """
        before = self._kept()
        answer = call(
            "add_request(req_idx, sampling_params)",
            self.plugin.add_request,
            req_idx,
            sampling_params,
        )
        _compare(before, self._kept())
        if not isinstance(answer, bool | np.bool_):
            raise PluginAnswered(answer)
        self.answers[req_idx] = bool(answer)
        return bool(answer)

    def apply_staged_writes(self) -> None:
        """Tell the plugin to flush what it staged."""
        before = self._kept()
        call("apply_staged_writes()", self.plugin.apply_staged_writes)
        _compare(before, self._kept())

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:
        """Pass logits ``[rows, vocabulary]`` on.

        Raises:
            PluginMisshapen: what came back has another shape, dtype or device.
            PluginWrote: the plugin wrote to the request states or the context.

        """
        shape = logits.shape  # the plugin may change the tensor that it was given
        note(
            "process",
            self.states,
            slots=ctx.expanded_idx_mapping.tolist(),
            tokens=ctx.input_ids.tolist(),
            positions=ctx.pos.tolist(),
            logits=logits.clone(),
            **_bounds(ctx),
        )
        before = self._kept(ctx)
        if self.watching is None:
            result = call("apply(logits, ctx)", self.plugin.apply, logits, ctx)
        else:
            given = [logits, *(getattr(ctx, name) for name in _CONTEXT)]
            given += [getattr(self.states, name).gpu for name in READ]
            with self.watching(given) as watch:
                result = call("apply(logits, ctx)", self.plugin.apply, logits, ctx)
            self.waited = watch.seen
        _compare(before, self._kept(ctx))
        if problem := misshapen(result, logits, shape):
            raise PluginMisshapen(problem)
        return result

    def _kept(self, ctx: LogitsContext | None = None) -> dict[str, bytes]:
        """Return what the plugin may only read."""
        if self.trusted:
            return {}
        found = {name: getattr(self.states, name).gpu.numpy().tobytes() for name in READ}
        if ctx is not None:
            found |= {name: getattr(ctx, name).numpy().tobytes() for name in _CONTEXT}
            found |= {name: getattr(ctx, name).tobytes() for name in _CONTEXT_ARRAYS}
        return found


def _compare(before: dict[str, bytes], after: dict[str, bytes]) -> None:
    for name, value in before.items():
        if value != after[name]:
            owner = "req_states" if name in READ else "ctx"
            raise PluginWrote(f"{owner}.{name}")


@attrs.define
class Bench(Stock):
    """One plugin class with everything it needs to be tried out."""

    told: ClassVar[str] = "slots"

    #: By parameter set: the rule about where state is read from that it breaks, if it was asked.
    causes: dict[Choice, str | None] = attrs.field(init=False, factory=dict)
    #: With and without speculative decoding.
    _idle: dict[bool, list[Watched]] = attrs.field(
        init=False, factory=lambda: {True: [], False: []}
    )
    #: Whether engines with speculative decoding may have the plugin; None where nobody has asked.
    _speculates: bool | None = attrs.field(init=False, default=None)
    _construction: Construction = attrs.field(init=False, factory=Construction)

    def new(
        self,
        max_requests: int = MAX_REQUESTS,
        *,
        vocabulary: int | None = None,
        trusted: bool = False,
        speculative: bool = False,
        length: int = MAX_MODEL_LEN,
    ) -> Watched:
        """Return an instance without requests: fresh, or used where building one takes long.

        Args:
            max_requests: slots of the engine.
            vocabulary: of the model, if it is to be another one than its own.
            trusted: whether nobody looks if the plugin writes to what it may only read.
            speculative: whether the engine has speculative decoding.
            length: tokens of a request, at the most.

        Raises:
            PluginRaised: the constructor raised.

        """
        usual = (max_requests, vocabulary, length) == (MAX_REQUESTS, None, MAX_MODEL_LEN)
        if usual and self._idle[speculative]:
            instance = self._idle[speculative].pop()
            instance.trusted = trusted
            return instance
        states = request_states(vocabulary or self.vocabulary, max_requests, length)
        construct = partial(self.construct, speculative=speculative)
        instance = self._construction.make(partial(call, "__init__", construct, states))
        note("new", states)
        return Watched(instance, states, trusted=trusted, speculative=speculative)

    @property
    def speculates(self) -> bool:
        """Whether the plugin lets engines with speculative decoding start.

        One that serves no drafts refuses them in its constructor: admission knows no engine.
        """
        if self._speculates is None:
            self._speculates = True
            self.retire(self.new())
            try:
                self.retire(self.new(speculative=True))
            except PluginRaised:
                self._speculates = False
        return self._speculates

    def construct(self, states: RequestState, *, speculative: bool = False) -> LogitsProcessor:
        """Make an instance as ``build_custom_logits_processors`` does."""
        own = states.vocab_size == self.vocabulary
        config = vllm_config(
            self.model,
            states.max_num_reqs,
            None if own else states.vocab_size,
            drafts=MOST_DRAFTS if speculative else 0,
            length=states.max_model_len,
        )
        shown = LogitsProcRequestState.from_request_state(states)
        return self.plugin(config, shown)

    def retire(self, instance: Watched) -> None:
        """Take back an instance after an example; all of its requests are finished."""
        if self._construction.slow and instance.states.max_num_reqs == MAX_REQUESTS:
            for name in list(instance.states.req_id_to_index):
                instance.states.remove_request(name)
            self._idle[instance.speculative].append(instance)


@attrs.define
class Alone:
    """A request by itself: a fresh instance, one slot, one row at a time."""

    instance: Watched
    params: SamplingParams
    prompt: Sequence[int]
    outputs: list[int] = attrs.field(factory=list)
    #: Whether the engine would process its row for other reasons than this plugin.
    processed: bool = False
    slot: int | None = None
    #: Steps in which others are added, who turn the buffers over.
    turned: bool = False
    name: str = "alone"

    def begin(self) -> None:
        """Add the request, with the outputs that it has, and write what was staged."""
        self.join()
        with torch.inference_mode():
            self.instance.states.apply_staged_writes()

    def join(self) -> None:
        """Add the request, with the outputs that it has."""
        states = self.instance.states
        tokens = [*self.prompt, *self.outputs]
        most = min(self.params.max_tokens or 1, states.max_model_len)  # as in the host
        states.add_request(self.name, len(self.prompt), tokens, 0, most)
        self.slot = states.req_id_to_index[self.name]
        joining(states, self.slot, self.params, self.prompt, self.outputs)
        with torch.inference_mode():
            self.instance.add_request(self.slot, self.params)

    def row(self, logits: torch.Tensor) -> torch.Tensor:
        """Advance one step and return the processed row for logits ``[vocabulary]``."""
        if self.slot is None:
            self.begin()
        return together([self], logits.unsqueeze(0), turned=self.turned)[0]

    @property
    def length(self) -> int:
        """The tokens that the request has."""
        return len(self.prompt) + len(self.outputs)

    def append(self, token: int) -> None:
        """Give the request its next token, as ``post_update`` does."""
        states = self.instance.states
        length = self.length
        self.outputs.append(token)
        if self.slot is not None:
            note("append", states, slot=self.slot, tokens=[token])
            states.all_token_ids.gpu[self.slot, length] = token
            states.total_len.gpu[self.slot] = length + 1


def all_join(
    instance: Watched, bench: Bench, choices: Sequence[Choice], outputs: Sequence[int] = ()
) -> list[Alone]:
    """Add a request for each choice to an instance, with such outputs, and return them."""
    requests = [
        Alone(instance, bench.params(choice), bench.prompt, [*outputs], name=f"r{number}")
        for number, choice in enumerate(choices)
    ]
    for request in requests:
        request.join()
    with torch.inference_mode():
        instance.states.apply_staged_writes()
    return requests


def _bounds(ctx: LogitsContext) -> dict[str, list[int]]:
    """Return the bounds of lengths, where they are more than what the rows tell."""
    ends = dict(zip(ctx.expanded_idx_mapping.tolist(), ctx.pos.tolist(), strict=True))
    told = [ends[slot] + 1 for slot in ctx.idx_mapping_np.tolist()]
    bounds = ctx.seq_lens_upper_bound_np[: len(told)].tolist()
    return {} if bounds == told else {"bounds": bounds}


def together(
    requests: Sequence[Alone], logits: torch.Tensor, *, turned: bool = False, spare: int = 0
) -> torch.Tensor:
    """Advance requests of one instance by a step, one row each; return the processed rows.

    Args:
        requests: those of the step, in the order of their rows.
        logits: ``[requests, vocabulary]``.
        turned: whether others are added in this step, who turn the buffers over.
        spare: how many requests there is room for beside them in the CUDA graph that runs.

    """
    instance = requests[0].instance
    states = instance.states
    with torch.inference_mode():
        if turned:
            states.apply_staged_writes()
        note("begin", states)
        instance.apply_staged_writes()
        ctx = context(requests, spare=spare)
        if not any(instance.answers[slot] for slot in ctx.idx_mapping_np.tolist()) and not any(
            request.processed for request in requests
        ):
            return logits  # no request needs to be processed: apply is not called
        return instance.apply(logits.clone(), ctx)


def context(requests: Sequence[Alone], *, spare: int = 0) -> LogitsContext:
    """Return what a plugin is told of a step of requests of one instance, one row each."""
    slots = torch.from_numpy(np.array([request.slot for request in requests], dtype=np.intp))
    ends = torch.tensor([request.length - 1 for request in requests])
    newest = requests[0].instance.states.all_token_ids.gpu[slots, ends]
    return one_row_each(slots, ends, newest, spare=spare)


def one_row_each(
    slots: torch.Tensor, ends: torch.Tensor, newest: torch.Tensor, *, spare: int = 0
) -> LogitsContext:
    """Return what a plugin is told of a step in which each slot has one row.

    Args:
        slots: those of the step, in the order of their rows.
        ends: the position of the newest token of each.
        newest: that token.
        spare: how many requests there is room for beside them in the CUDA graph that runs.

    """
    lengths = np.zeros(len(slots) + spare, dtype=np.int32)
    lengths[: len(slots)] = ends + 1
    return LogitsContext(
        expanded_idx_mapping=slots,
        idx_mapping=slots,
        idx_mapping_np=slots.numpy(),
        expanded_local_pos=torch.zeros(len(slots), dtype=torch.int32),
        input_ids=newest,
        pos=ends,
        seq_lens_upper_bound_np=lengths,
    )
