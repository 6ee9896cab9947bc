# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: the steps of two logits processors in turn, of ours, vLLM's or the document's.

Processors are asked for by name.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch
from vllm.v1.sample.logits_processor import (
    LogitBiasLogitsProcessor,
    MinPLogitsProcessor,
    MinTokensLogitsProcessor,
)

from conformance.benchmark.served import identity
from conformance.benchmark.step_cost import Contestant, measure
from conformance.engine.models import tiny_llama
from reference_plugins.logits_batch.no_repeat_ngram import NoRepeatNgramLogitsProcessor
from reference_plugins.logits_batch.probability_floor import ProbabilityFloorLogitsProcessor
from reference_plugins.logits_batch.request_level import TwoArgumentTargetToken
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor
from reference_plugins.logits_batch.thinking_budget import ThinkingBudgetLogitsProcessor
from reference_plugins.logits_batch.token_bias import TokenBiasLogitsProcessor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Verbatim from the document, which has no types to check.
EXAMPLES = importlib.import_module("fixtures.documented_example")

#: By name, since their base class is vLLM's where CUDA or a stand-in for it is.
SLOTS = "reference_plugins.logits_slot."

BATCH, SLOT = "logits/batch", "logits/slot"
TARGET = {"extra_args": {"target_token": 67}}
BIASED = list(range(5, 305, 10))  #: tokens of a request
NGRAM = {"extra_args": {"no_repeat_ngram": 3}}


def _thinking(budget: int, start: list[int]) -> dict[str, dict[str, Any]]:
    """Return parameters; a request that never says the start marker only counts."""
    return {"extra_args": {"thinking_budget": budget, "thinking_start": start, "thinking_end": 99}}


def contestants() -> dict[str, Contestant]:
    """Return each processor under its name, with the parameters that switch it on."""
    importlib.import_module("conformance.logits_slot.host")
    slots = {
        "target_token, slots": ("target_token", "TargetTokenSlotLogitsProcessor", TARGET),
        "dual_target_token, slots": ("dual_target_token", "DualTargetTokenLogitsProcessor", TARGET),
        "no_repeat_ngram, slots": ("no_repeat_ngram", "NoRepeatNgramSlotLogitsProcessor", NGRAM),
    }
    endless = {"min_tokens": 100_000, "max_tokens": 100_000, "stop_token_ids": [2]}
    batch: dict[str, tuple[type, dict[str, Any]]] = {
        "identity": (identity(BATCH), {}),
        "document's example": (EXAMPLES.DummyLogitsProcessor, TARGET),
        "document's wrapped example": (EXAMPLES.WrappedPerReqLogitsProcessor, TARGET),
        "vLLM's logit bias": (LogitBiasLogitsProcessor, {"logit_bias": dict.fromkeys(BIASED, 2.5)}),
        "vLLM's min-p": (MinPLogitsProcessor, {"min_p": 0.1}),
        "vLLM's min tokens": (MinTokensLogitsProcessor, endless),
        "target_token": (TargetTokenLogitsProcessor, TARGET),
        "request_level": (TwoArgumentTargetToken, TARGET),
        "probability_floor": (
            ProbabilityFloorLogitsProcessor,
            {"extra_args": {"probability_floor": 0.1}},
        ),
        "token_bias": (
            TokenBiasLogitsProcessor,
            {"extra_args": {"biased_tokens": BIASED, "token_bias": 2.5}},
        ),
        "no_repeat_ngram": (NoRepeatNgramLogitsProcessor, NGRAM),
        "thinking_budget": (ThinkingBudgetLogitsProcessor, _thinking(100, [98])),
        "thinking_budget, forcing": (ThinkingBudgetLogitsProcessor, _thinking(0, [3])),
    }
    found = {name: Contestant(cls, BATCH, (on,)) for name, (cls, on) in batch.items()}
    for name, (module, cls, on) in slots.items():
        plugin = getattr(importlib.import_module(SLOTS + module), cls)
        found[name] = Contestant(plugin, SLOT, (on,))
    return found


def compare(connection: Connection) -> None:
    """Answer each ``(first, second, load, seconds, seed)`` with its cost."""
    torch.set_num_threads(1)  # a second thread waits for whatever else the machine does
    known, model = contestants(), str(tiny_llama())
    try:
        while True:
            first, second, load, seconds, seed = connection.recv()
            connection.send(
                measure(known[first], known[second], load, model=model, seconds=seconds, seed=seed)
            )
    except EOFError:
        pass
