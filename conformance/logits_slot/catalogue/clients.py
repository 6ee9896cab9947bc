# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about requests that any client may send."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_slot.catalogue.sources import SINCE, vllm
from conformance.rules import changes, ends, section

RULES = section(
    "Whatever a client may send",
    rules.ends_no_engine(
        "LS-35",
        ends(
            vllm(
                "v1/worker/gpu/sample/sampler.py:Sampler.apply_sampling_params",
                "add_request, apply_staged_writes and apply run in the engine's step: what "
                "they raise ends the engine, and every request in it",
            )
        ),
        changes(
            vllm(
                "v1/worker/gpu/sample/sampler.py:Sampler.apply_sampling_params",
                "apply changes one tensor, in which every request of the step has its rows",
            )
        ),
        vllm(
            "v1/worker/gpu/sample/logits_processor/loader.py:"
            "build_custom_logits_processors_params_validator",
            "runs at admission, in the server's own process; it is the only call that may "
            "refuse a request",
        ),
    ),
    rules.refuses_with_400("LS-39", SINCE),
)
