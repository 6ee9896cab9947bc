# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what one engine step costs in two logits processors, in turn."""

from __future__ import annotations

import importlib
import random
import statistics
import time
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np
import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import (
    BatchUpdate,
    LogitBiasLogitsProcessor,
    LogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)
from vllm.v1.worker.gpu.sample.logits_processor import LogitsContext, LogitsProcRequestState
from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor as SlotLogitsProcessor

from conformance.engine.models import tiny_llama
from conformance.logits.configuration import vllm_config
from conformance.logits_slot.host import CPU
from reference_plugins.logits_batch.no_repeat_ngram import NoRepeatNgramLogitsProcessor
from reference_plugins.logits_batch.probability_floor import ProbabilityFloorLogitsProcessor
from reference_plugins.logits_batch.request_level import TwoArgumentTargetToken
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor
from reference_plugins.logits_batch.thinking_budget import ThinkingBudgetLogitsProcessor
from reference_plugins.logits_slot.dual_target_token import DualTargetTokenLogitsProcessor
from reference_plugins.logits_slot.no_repeat_ngram import NoRepeatNgramSlotLogitsProcessor
from reference_plugins.logits_slot.target_token import TargetTokenSlotLogitsProcessor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from vllm.v1.worker.gpu.states import RequestState

#: Verbatim from the document, which has no types to check.
EXAMPLES = importlib.import_module("fixtures.documented_example")

#: By name, and so after the host, which replaces what needs CUDA in it.
STATES = importlib.import_module("vllm.v1.worker.gpu.states")

VOCABULARY = 32_000
LARGEST = 256  #: requests
HISTORY = 500  #: outputs that every request has at the start, as if resumed
LONGEST = 1024  #: tokens that a slot has room for
WORDS = 50  #: different tokens in the outputs, so that about every fifth trigram repeats
REPLACED_EVERY = 16  #: steps after which one request is replaced by another of the same kind
ROUNDS = {1: 400, 16: 120, LARGEST: 40}
IDLE_CALLS = 200  #: steps in one sample where nobody opts in: a single one is too short to time


class Identity(LogitsProcessor):
    """Does nothing, in the fewest words."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ANN401 - vLLM's signature
        """Keep nothing."""

    def is_argmax_invariant(self) -> bool:
        """Return True."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Ignore everybody."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return logits


class IdentitySlots(SlotLogitsProcessor):
    """Does nothing, in the fewest words."""

    def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:  # noqa: ARG002 - vLLM's signature
        """Decline everybody."""
        return False

    def apply(self, logits: torch.Tensor, ctx: LogitsContext) -> torch.Tensor:  # noqa: ARG002 - vLLM's signature
        """Return the logits."""
        return logits


#: Each processor with the parameters that switch it on.
PROCESSORS: dict[str, tuple[type[Any], dict[str, Any]]] = {
    "identity": (Identity, {}),
    "document's example": (EXAMPLES.DummyLogitsProcessor, {"extra_args": {"target_token": 67}}),
    "document's wrapped example": (
        EXAMPLES.WrappedPerReqLogitsProcessor,
        {"extra_args": {"target_token": 67}},
    ),
    "vLLM's min-p": (MinPLogitsProcessor, {"min_p": 0.1}),
    "vLLM's logit bias": (LogitBiasLogitsProcessor, {"logit_bias": {67: -100.0}}),
    "vLLM's min tokens": (
        MinTokensLogitsProcessor,
        {"min_tokens": 100_000, "max_tokens": 100_000, "stop_token_ids": [2]},
    ),
    "target_token": (TargetTokenLogitsProcessor, {"extra_args": {"target_token": 67}}),
    "request_level": (TwoArgumentTargetToken, {"extra_args": {"target_token": 67}}),
    "probability_floor": (
        ProbabilityFloorLogitsProcessor,
        {"extra_args": {"probability_floor": 0.1}},
    ),
    "no_repeat_ngram": (NoRepeatNgramLogitsProcessor, {"extra_args": {"no_repeat_ngram": 3}}),
    "thinking_budget": (
        ThinkingBudgetLogitsProcessor,
        {"extra_args": {"thinking_budget": 10**6, "thinking_start": 3, "thinking_end": 99}},
    ),
    "thinking_budget, forcing": (
        ThinkingBudgetLogitsProcessor,
        {"extra_args": {"thinking_budget": 0, "thinking_start": 3, "thinking_end": 99}},
    ),
}

#: The same of Model Runner V2.
SLOT_PROCESSORS: dict[str, tuple[type[SlotLogitsProcessor], dict[str, Any]]] = {
    "identity, slots": (IdentitySlots, {}),
    "target_token, slots": (TargetTokenSlotLogitsProcessor, {"extra_args": {"target_token": 67}}),
    "dual_target_token, slots": (
        DualTargetTokenLogitsProcessor,
        {"extra_args": {"target_token": 67}},
    ),
    "no_repeat_ngram, slots": (
        NoRepeatNgramSlotLogitsProcessor,
        {"extra_args": {"no_repeat_ngram": 3}},
    ),
}


@attrs.define
class Served:
    """A full batch with one processor."""

    processor: Any
    params: list[SamplingParams]  #: of each row
    outputs: list[list[int]] = attrs.field(init=False)
    update: Any = attrs.field(init=False)  #: what the next step tells of requests that joined

    def __attrs_post_init__(self) -> None:
        """Have everybody join."""
        choose = random.Random(20)
        self.outputs = [[choose.randrange(3, WORDS) for _ in range(HISTORY)] for _ in self.params]
        self.update = self._joining(range(len(self.params)))

    def _joining(self, rows: range) -> Any:  # noqa: ANN401 - each interface has its own
        added = [(row, self.params[row], [3], self.outputs[row]) for row in rows]
        return BatchUpdate(len(self.params), [], added, [])

    def step(self, logits: torch.Tensor) -> float:
        """Return the seconds that one step takes."""
        started = time.perf_counter()
        self.processor.update_state(self.update)
        self.processor.apply(logits)
        seconds = time.perf_counter() - started
        self.update = None
        return seconds

    def idle(self, logits: torch.Tensor) -> float:
        """Return the seconds that one step takes, on average over many in which nothing happens."""
        update_state, apply = self.processor.update_state, self.processor.apply
        started = time.perf_counter()
        for _ in range(IDLE_CALLS):
            update_state(None)
            apply(logits)
        return (time.perf_counter() - started) / IDLE_CALLS

    def go_on(self, step: int) -> None:
        """Give every request a token, and now and then replace one."""
        for row, outputs in enumerate(self.outputs):
            outputs.append(3 + (7 * step + 5 * row) * len(outputs) % WORDS)
        if step % REPLACED_EVERY == 0:
            row = step // REPLACED_EVERY % len(self.params)
            self.outputs[row] = self.outputs[row][:HISTORY]
            self.update = self._joining(range(row, row + 1))


@attrs.define
class ServedSlots(Served):
    """A full batch in the slots of vLLM's own request states; keeping these up is not timed."""

    states: RequestState

    def _joining(self, rows: range) -> list[tuple[int, SamplingParams]]:
        for row in rows:
            self.states.remove_request(str(row))
            self.states.add_request(str(row), 1, [3, *self.outputs[row]], 0, LONGEST)
        self.states.apply_staged_writes()
        return [(self.states.req_id_to_index[str(row)], self.params[row]) for row in rows]

    def step(self, logits: torch.Tensor) -> float:
        """Return the seconds that one step takes."""
        context, processor = self._context(), self.processor
        started = time.perf_counter()
        for slot, params in self.update:
            processor.add_request(slot, params)
        processor.apply_staged_writes()
        processor.apply(logits, context)
        seconds = time.perf_counter() - started
        self.update = []
        return seconds

    def idle(self, logits: torch.Tensor) -> float:
        """Return the seconds that one step takes, on average over many in which nothing happens.

        ``apply`` is called then as well, where another processor has work to do.
        """
        context = self._context()
        apply_staged_writes, apply = self.processor.apply_staged_writes, self.processor.apply
        started = time.perf_counter()
        for _ in range(IDLE_CALLS):
            apply_staged_writes()
            apply(logits, context)
        return (time.perf_counter() - started) / IDLE_CALLS

    def go_on(self, step: int) -> None:
        """Give every request a token, and now and then replace one."""
        super().go_on(step)
        slots, newest = self._slots(), torch.tensor([len(outputs) for outputs in self.outputs])
        tokens = torch.tensor([outputs[-1] for outputs in self.outputs], dtype=torch.int32)
        self.states.all_token_ids.gpu[slots, newest] = tokens
        self.states.total_len.gpu[slots] = (newest + 1).int()

    def _slots(self) -> torch.Tensor:
        return torch.tensor(
            [self.states.req_id_to_index[str(row)] for row in range(len(self.params))]
        )

    def _context(self) -> LogitsContext:
        slots, newest = self._slots(), torch.tensor([len(outputs) for outputs in self.outputs])
        return LogitsContext(
            expanded_idx_mapping=slots,
            idx_mapping=slots,
            idx_mapping_np=slots.numpy(),
            expanded_local_pos=torch.zeros(len(slots), dtype=torch.int32),
            input_ids=self.states.all_token_ids.gpu[slots, newest],
            pos=newest,
            seq_lens_upper_bound_np=(newest + 1).numpy().astype(np.int32),
        )


def _request_states() -> RequestState:
    return STATES.RequestState(
        max_num_reqs=LARGEST,
        max_model_len=LONGEST,
        max_num_batched_tokens=LARGEST * LONGEST,
        num_speculative_steps=0,
        vocab_size=VOCABULARY,
        device=CPU,
    )


def _served(name: str, requests: int, share: float) -> Served:
    processor, keywords = (PROCESSORS | SLOT_PROCESSORS)[name]
    params = [
        # Spread over the batch: 0.5 opts every second request in.
        SamplingParams(**keywords)
        if int((row + 1) * share) > int(row * share) or (requests == 1 and share)
        else SamplingParams()
        for row in range(requests)
    ]
    for one in params:
        one.update_from_generation_config({}, 1)  # as the front end does
    config = vllm_config(str(tiny_llama()), LARGEST)
    if name in SLOT_PROCESSORS:
        states = _request_states()
        shown = LogitsProcRequestState.from_request_state(states)
        return ServedSlots(processor(config, shown), params, states)
    return Served(processor(config, CPU, False), params)


def measure(connection: Connection) -> None:
    """Answer (first, second, requests, share) with the median seconds of both and their ratio."""
    torch.set_num_threads(1)  # a second thread waits for whatever else the machine does
    master = torch.randn(LARGEST, VOCABULARY, generator=torch.Generator().manual_seed(20))
    scratch = torch.empty_like(master)
    try:
        while True:
            first, second, requests, share = connection.recv()
            pair = (_served(first, requests, share), _served(second, requests, share))
            with torch.inference_mode():
                connection.send(_in_turn(pair, master[:requests], scratch[:requests], share))
    except EOFError:
        pass


def _in_turn(
    pair: tuple[Served, Served], master: torch.Tensor, logits: torch.Tensor, share: float
) -> tuple[float, float, float]:
    seconds: tuple[list[float], list[float]] = ([], [])
    for step in range(-3, ROUNDS[len(master)]):
        order = (0, 1) if step % 2 else (1, 0)
        for which in order:
            served = pair[which]
            logits.copy_(master)
            taken = served.step(logits)
            if not share:
                taken = served.idle(logits)
            if step >= 0:  # the first ones take in the batch and warm up
                seconds[which].append(taken)
            served.go_on(step + 4)
    ratios = [one / other for one, other in zip(*seconds, strict=True)]
    first, second = map(statistics.median, seconds)
    return first, second, statistics.median(ratios)
