# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about what a step costs."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_slot.catalogue.sources import vllm
from conformance.rules import section

RULES = section(
    "Cost",
    rules.grows_with_batch(
        "LS-32",
        "In a step in which nobody joins, apply_staged_writes and apply execute about four "
        "times as many instructions of Python with four times as many opted-in requests, and "
        "about as many with a vocabulary four times as large.",
        vllm(
            "v1/worker/gpu/sample/bad_words.py:BadWordsState.apply",
            "vLLM's own processors look at one array on the host and launch one kernel for "
            "all rows",
        ),
        vllm(
            "v1/worker/gpu/sample/sampler.py:Sampler.apply_sampling_params",
            "runs between the forward pass and sampling, with every request waiting",
        ),
    ),
    rules.needs_little_memory(
        "LS-33",
        "A step of a batch holds at most 16 times the memory of its float32 logits at the "
        "same time, with 40 outputs for each request.",
        vllm(
            "v1/worker/gpu/model_runner.py:GPUModelRunner._dummy_sampler_run",
            "the memory of sampling is measured before any request is added, so without "
            "custom processors, and all but a margin of the rest is given to keys and values",
        ),
    ),
)
