# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about what a step costs."""

from __future__ import annotations

from conformance.logits_slot.catalogue.sources import vllm
from conformance.rules import Level, Rule, section

RULES = section(
    "Cost",
    Rule(
        id="LS-32",
        title="A step grows no faster than its batch, and not with the vocabulary",
        statement=(
            "In a step in which nobody joins, apply_staged_writes and apply execute about four "
            "times as many instructions of Python with four times as many opted-in requests, and "
            "about as many with a vocabulary four times as large."
        ),
        level=Level.SHOULD,
        sources=(
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
        hint="Work on all tokens, or on pairs of requests, belongs into a tensor operation.",
    ),
    Rule(
        id="LS-33",
        title="A step needs little memory beside its logits",
        statement=(
            "A step of a batch holds at most 16 times the memory of its float32 logits at the "
            "same time, with 40 outputs for each request."
        ),
        level=Level.SHOULD,
        sources=(
            vllm(
                "v1/worker/gpu/model_runner.py:GPUModelRunner._dummy_sampler_run",
                "the memory of sampling is measured before any request is added, so without "
                "custom processors, and all but a margin of the rest is given to keys and values",
            ),
        ),
        hint="Nothing reserves memory for a plugin: what it needs comes out of the margin that "
        "gpu_memory_utilization leaves. Count tokens with scatter_add_ or a sparse index, never "
        "with a row of the vocabulary for each output.",
    ),
)
