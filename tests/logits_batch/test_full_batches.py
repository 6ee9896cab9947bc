# SPDX-License-Identifier: Apache-2.0
"""What a full batch shows is held against the size only where a few requests do not show it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from vllm.sampling_params import SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor
from vllm.v1.sample.logits_processor.builtin import process_dict_updates

from conformance.engine.models import tiny_llama
from conformance.inputs.history import Choice
from conformance.logits_batch.batches import serves_full_batches
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.strata import STRATA
from conformance.verdict import Verdict


class _ServesOneOfEach(LogitsProcessor):
    """Adds to the row of the last request that names a token, and forgets those before it."""

    def __init__(self, *_: object) -> None:
        self.rows: dict[int, int] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        process_dict_updates(self.rows, batch_update, self._token)

    @staticmethod
    def _token(params: SamplingParams, *_: object) -> int:
        assert params.extra_args
        return int(params.extra_args["add"])

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        for token, row in {token: row for row, token in self.rows.items()}.items():
            logits[row, token] += 9.0
        return logits


def test_a_fault_of_few_is_none_of_many() -> None:
    """Where requests come apart that are told the same, it is not for their number."""
    sets: dict[Choice, Any] = {
        ("on", number): {"extra_args": {"add": 5 + number}} for number in range(2)
    }
    bench = Bench(_ServesOneOfEach, str(tiny_llama()), sets, 1)
    # Its histories show nothing.
    trial: Any = SimpleNamespace(
        bench=bench, contract=SimpleNamespace(strata=STRATA), stratum=lambda _: []
    )

    found = serves_full_batches(trial)

    assert found.verdict is Verdict.NOT_VERIFIED
    assert "with 4 of them" in (found.message or "")
