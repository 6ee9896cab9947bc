# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about what a step costs."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_batch.catalogue.sources import document, vllm
from conformance.rules import Rule, section

RULES = section(
    "Cost",
    Rule(
        id="LB-35",
        title="Where nobody opts in, a large batch costs what a small one does",
        statement=(
            "A step in which no request mentions the plugin executes about as many instructions of "
            "Python with 128 requests as with 8."
        ),
        sources=(
            document(
                "we recommend designing apply() to return the unmodified input tensor if all "
                "requests have the logits processor disabled"
            ),
            vllm(
                "v1/sample/logits_processor/builtin.py:MinPLogitsProcessor.apply",
                "looks at a count that update_state keeps, before anything else",
            ),
        ),
        hint="Go through the requests that opted in, not through the rows of the batch: every step "
        "of every request waits for this, also of those who never heard of the plugin.",
    ),
    rules.grows_with_batch(
        "LB-36",
        "With four times as many opted-in requests a step executes about four times as many "
        "instructions of Python, and with a vocabulary four times as large about as many.",
        vllm(
            "v1/sample/logits_processor/builtin.py:process_dict_updates",
            "vLLM's own processors do a fixed amount of work on the host for each request",
        ),
        vllm(
            "v1/sample/sampler.py:Sampler.apply_logits_processors",
            "runs between the forward pass and sampling, with every request waiting",
        ),
    ),
    rules.needs_little_memory(
        "LB-37",
        "A step of a batch holds at most 16 times the memory of its logits at the same time, "
        "with 40 outputs for each request.",
        vllm(
            "v1/worker/gpu_model_runner.py:GPUModelRunner._dummy_sampler_run",
            "measures the memory of sampling without custom processors, and all but a margin "
            "of the rest is given to keys and values",
        ),
    ),
)
