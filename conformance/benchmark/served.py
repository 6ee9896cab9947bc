# SPDX-License-Identifier: Apache-2.0
"""A full batch with one logits processor, whose steps can be timed call by call.

The calls are those of vLLM's model runners; what the runners do beside them is left out, and what
has to be prepared for a call is prepared before it is timed.
"""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, Protocol

import attrs
import numpy as np
import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor

from conformance.benchmark.loads import Load
from conformance.engine.model_classes import inspect_models_here

Keywords = Mapping[str, Any]

#: Tokens that a request may have; more steps than this are not measured in a row.
LONGEST = 2048
#: Outputs of every request at the start, as if it had been preempted and resumed.
HISTORY = 200
#: Different tokens in the outputs, few enough that n-grams come again.
WORDS = 50
FIRST_WORD = 3

PROMPT = (3, 5, 7, 11)


class Served(Protocol):
    """A batch whose requests all take part in each step."""

    def prepare(self) -> None:
        """Do what is not timed: give every request a token, and let requests come and go."""

    def step(self, logits: torch.Tensor) -> None:
        """Make the calls of one step; logits ``[requests, vocabulary]``."""


class Identity(LogitsProcessor):
    """Does nothing, in the fewest words."""

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001 - vLLM's signature
        """Keep nothing."""

    def is_argmax_invariant(self) -> bool:
        """Return True."""
        return True

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Ignore everybody."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        return logits


@cache
def configuration(model: str, requests: int, vocabulary: int) -> VllmConfig:
    """Return the configuration of an engine for so large a batch, and so large a vocabulary."""
    inspect_models_here()
    return EngineArgs(
        model=model,
        enforce_eager=True,
        max_model_len=LONGEST,
        max_num_seqs=requests,
        max_num_batched_tokens=max(LONGEST, requests),
        dtype="float32",
        hf_overrides={"vocab_size": vocabulary, "max_position_embeddings": LONGEST},
    ).create_engine_config()


def parameters(load: Load, on: Sequence[Keywords], off: Sequence[Keywords]) -> list[SamplingParams]:
    """Return the parameters of each row; a plugin that cannot be left out is on for all."""
    made = []
    for row in range(load.requests):
        choices = on if on and (load.opted_in(row) or not off) else off
        params = SamplingParams(**choices[row % len(choices)])
        params.update_from_generation_config({}, 1)  # as the front end does
        made.append(params)
    return made


@attrs.define
class BatchSteps:
    """A processor of the V1 model runner: ``update_state`` and ``apply``."""

    processor: Any
    load: Load
    params: list[SamplingParams]  #: of each row
    outputs: list[list[int]] = attrs.field(init=False)
    _update: BatchUpdate | None = attrs.field(init=False)
    _steps: int = attrs.field(init=False, default=0)

    @classmethod
    def start(
        cls, plugin: type, load: Load, params: list[SamplingParams], model: str, device: str
    ) -> BatchSteps:
        """Make an instance, and have everybody join with the next step."""
        config = configuration(model, load.requests, load.vocabulary)
        processor = plugin(config, torch.device(device), device != "cpu")
        return cls(processor, load, params)

    def __attrs_post_init__(self) -> None:
        """Have everybody join."""
        choose = random.Random(20)
        self.outputs = [[_word(choose) for _ in range(HISTORY)] for _ in self.params]
        self._update = self._joining(range(len(self.params)))

    def prepare(self) -> None:
        """Give every request a token, and replace one where the batch is churning."""
        self._steps += 1
        if self._steps == 1:
            return  # everybody joins
        self._update = None
        for row, outputs in enumerate(self.outputs):
            outputs.append(_next(self._steps, row, outputs))
        if self.load.churning:
            row = self._steps % len(self.params)
            self.outputs[row] = self.outputs[row][:HISTORY]
            self._update = self._joining(range(row, row + 1))

    def step(self, logits: torch.Tensor) -> None:
        """Make the calls of one step."""
        self.processor.update_state(self._update)
        self.processor.apply(logits)

    def _joining(self, rows: range) -> BatchUpdate:
        added = [(row, self.params[row], list(PROMPT), self.outputs[row]) for row in rows]
        return BatchUpdate(len(self.params), [], added, [])


@attrs.define
class SlotSteps:
    """A processor of Model Runner V2: ``add_request``, ``apply_staged_writes``, ``apply``."""

    processor: Any
    states: Any  #: vLLM's ``RequestState``
    load: Load
    params: list[SamplingParams]  #: of each row
    device: torch.device
    outputs: list[list[int]] = attrs.field(init=False)
    _joining: list[tuple[int, SamplingParams]] = attrs.field(init=False)
    _wanted: np.ndarray = attrs.field(init=False)  #: by row, what ``add_request`` answered
    _context: Any = attrs.field(init=False, default=None)
    _steps: int = attrs.field(init=False, default=0)

    @classmethod
    def start(
        cls, plugin: type, load: Load, params: list[SamplingParams], model: str, device: str
    ) -> SlotSteps:
        """Make an instance, and have everybody join with the next step."""
        if torch.device(device).type == "cpu":
            # The host replaces what needs CUDA, before vLLM's states are imported.
            importlib.import_module("conformance.logits_slot.host")
        interface = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor")
        module = importlib.import_module("vllm.v1.worker.gpu.states")
        states = module.RequestState(
            max_num_reqs=load.requests,
            max_model_len=LONGEST,
            max_num_batched_tokens=load.requests * LONGEST,
            num_speculative_steps=0,
            vocab_size=load.vocabulary,
            device=torch.device(device),
        )
        config = configuration(model, load.requests, load.vocabulary)
        shown = interface.LogitsProcRequestState.from_request_state(states)
        return cls(plugin(config, shown), states, load, params, torch.device(device))

    def __attrs_post_init__(self) -> None:
        """Have everybody join."""
        choose = random.Random(20)
        self.outputs = [[_word(choose) for _ in range(HISTORY)] for _ in self.params]
        self._wanted = np.zeros(len(self.params), dtype=bool)
        self._joining = self._join(range(len(self.params)))

    def prepare(self) -> None:
        """Give every request a token, replace one where the batch is churning, and look around."""
        self._steps += 1
        if self._steps > 1:
            self._joining = []
            for row, outputs in enumerate(self.outputs):
                outputs.append(_next(self._steps, row, outputs))
            self._write()
            if self.load.churning:
                row = self._steps % len(self.params)
                self.outputs[row] = self.outputs[row][:HISTORY]
                self._joining = self._join(range(row, row + 1))
        self._context = self._look()

    def step(self, logits: torch.Tensor) -> None:
        """Make the calls of one step; ``apply`` is left out where nobody wants it, as vLLM does."""
        for slot, params in self._joining:
            self._wanted[self._row(slot)] = self.processor.add_request(slot, params)
        self.processor.apply_staged_writes()
        if self._wanted.any():
            self.processor.apply(logits, self._context)

    def _join(self, rows: range) -> list[tuple[int, SamplingParams]]:
        for row in rows:
            name, tokens = str(row), [*PROMPT, *self.outputs[row]]
            self.states.remove_request(name)
            self.states.add_request(name, len(PROMPT), tokens, 0, LONGEST)
        self.states.apply_staged_writes()
        return [(self.states.req_id_to_index[str(row)], self.params[row]) for row in rows]

    def _row(self, slot: int) -> int:
        return int(self.states.index_to_req_id[slot])

    def _write(self) -> None:
        """Write the newest token of each request where the model runner puts it."""
        slots, newest = self._slots(), self._newest()
        tokens = torch.tensor([outputs[-1] for outputs in self.outputs], dtype=torch.int32)
        self.states.all_token_ids.gpu[slots, newest] = tokens.to(self.device)
        self.states.total_len.gpu[slots] = (newest + 1).int()

    def _slots(self) -> torch.Tensor:
        slots = [self.states.req_id_to_index[str(row)] for row in range(len(self.params))]
        return torch.tensor(slots, device=self.device)

    def _newest(self) -> torch.Tensor:
        ends = [len(PROMPT) + len(outputs) - 1 for outputs in self.outputs]
        return torch.tensor(ends, device=self.device)

    def _look(self) -> Any:  # noqa: ANN401 - vLLM's ``LogitsContext``
        interface = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor")
        slots, newest = self._slots(), self._newest()
        return interface.LogitsContext(
            expanded_idx_mapping=slots,
            idx_mapping=slots,
            idx_mapping_np=slots.cpu().numpy(),
            expanded_local_pos=torch.zeros(len(slots), dtype=torch.int32, device=self.device),
            input_ids=self.states.all_token_ids.gpu[slots, newest],
            pos=newest,
            seq_lens_upper_bound_np=(newest + 1).cpu().numpy().astype(np.int32),
        )


def _word(choose: random.Random) -> int:
    return choose.randrange(FIRST_WORD, WORDS)


def _next(step: int, row: int, outputs: Sequence[int]) -> int:
    return FIRST_WORD + (7 * step + 5 * row) * len(outputs) % WORDS


def identity(generation: str) -> type:
    """Return the processor of a generation that does nothing."""
    return Identity if generation == "logits/batch" else _identity_slots()


@cache
def _identity_slots() -> type:
    interface = importlib.import_module("vllm.v1.worker.gpu.sample.logits_processor")

    class IdentitySlots(interface.LogitsProcessor):  # type: ignore[name-defined] # a class of vLLM, by name
        """Does nothing, in the fewest words."""

        def add_request(self, req_idx: int, sampling_params: SamplingParams) -> bool:  # noqa: ARG002 - vLLM's signature
            """Take everybody, so that apply is called."""
            return True

        def apply(self, logits: torch.Tensor, ctx: object) -> torch.Tensor:  # noqa: ARG002 - vLLM's signature
            """Return the logits."""
            return logits

    return IdentitySlots


#: How a batch is served, by generation.
STEPS: dict[str, Callable[..., Served]] = {
    "logits/batch": BatchSteps.start,
    "logits/slot": SlotSteps.start,
}
