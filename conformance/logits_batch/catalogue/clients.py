# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about requests that any client may send."""

from __future__ import annotations

from conformance.logits_batch.catalogue.sources import ALL, SERVER, SIMULATOR, vllm
from conformance.rules import Level, Rule, ends, section

RULES = section(
    "Whatever a client may send",
    Rule(
        id="LB-38",
        title="No request that a client can send ends the engine",
        statement=(
            "A request with any value under the keys that the plugin reads is refused by "
            "validate_params, or it is served: alone and among others nothing raises, nothing "
            "hangs, memory stays bounded, and other requests do not notice."
        ),
        level=Level.MUST,
        sources=(
            ends(
                vllm(
                    "v1/worker/gpu_model_runner.py:GPUModelRunner.execute_model",
                    "update_state and apply run in the engine's step: what they raise ends the "
                    "engine, and every request in it",
                )
            ),
            vllm(
                "v1/sample/logits_processor/__init__.py:validate_logits_processors_parameters",
                "runs at admission, in the server's own process; it is the only call that may "
                "refuse a request",
            ),
        ),
        hint="Check in validate_params the type, the sign, the upper bound and the members of "
        "every value; what depends on the model, such as the size of the vocabulary, check "
        "again where it is used, and leave such a row as it came.",
        evidence=ALL,
        resembles=("vllm-project/vllm#27560", "vllm-project/vllm#16529"),
    ),
    Rule(
        id="LB-42",
        title="A request that is refused gets status 400",
        statement=(
            "Whatever the value, validate_params refuses a request with an exception that vLLM "
            "answers with status 400, and so names the client's mistake."
        ),
        level=Level.SHOULD,
        sources=(
            vllm(
                "entrypoints/serve/exception_handling/error_response.py:create_error_response",
                "ValueError, TypeError and OverflowError become 400 in vLLM 0.32; any other "
                "exception becomes 500, which clients try again",
            ),
        ),
        hint="Check with isinstance before anything is looked up, compared or counted, and raise "
        "ValueError.",
        evidence=(SIMULATOR, SERVER),
    ),
)
