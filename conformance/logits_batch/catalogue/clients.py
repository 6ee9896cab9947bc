# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about requests that any client may send."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_batch.catalogue.sources import SINCE, vllm
from conformance.rules import changes, ends, section

RULES = section(
    "Whatever a client may send",
    rules.ends_no_engine(
        "LB-38",
        ends(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.execute_model",
                "update_state and apply run in the engine's step: what they raise ends the "
                "engine, and every request in it",
            )
        ),
        changes(
            vllm(
                "v1/sample/sampler.py:Sampler.apply_logits_processors",
                "apply changes one tensor, in which every request of the step has its row",
            )
        ),
        vllm(
            "v1/sample/logits_processor/__init__.py:validate_logits_processors_parameters",
            "runs at admission, in the server's own process; it is the only call that may "
            "refuse a request",
        ),
    ),
    rules.refuses_with_400("LB-42", SINCE),
)
