# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about what a request goes through."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_slot.catalogue.sources import (
    ALL,
    ENGINE,
    SINCE,
    STOPS,
    interface,
    vllm,
)
from conformance.rules import Rule, changes, ends, section, sentence

RULES = section(
    "The life of a request",
    Rule(
        id="LS-08",
        title="A preempted request comes back in another slot, with its outputs",
        statement=(
            "Preemption frees the slot. The request comes back through add_request, often in "
            "another slot, with prefill_len > prompt_len: the tokens between are its outputs."
        ),
        sources=(
            interface(
                "LogitsProcRequestState",
                "the prompt plus any partial output on resumption after preemption",
            ),
            vllm("v1/worker/gpu/model_runner.py:GPUModelRunner.finish_requests", "preempted too"),
        ),
        hint="Derive what depends on outputs from all_token_ids[slot, prompt_len:total_len]; a "
        "counter that starts at zero in add_request forgets.",
        evidence=ENGINE,
    ),
    Rule(
        id="LS-09",
        title="Rows of unfinished prefills lead to nothing",
        statement=(
            "While a prompt is computed in chunks its request has a row whose sample is thrown "
            "away; later rows do not depend on how often that happened."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/sample/sampler.py:Sampler.__call__",
                "chunked-prefill requests ... aren't done prefilling and produce no output token",
            ),
        ),
        hint="Advance state by tokens (pos, total_len), not by rows seen.",
        evidence=ENGINE,
    ),
    Rule(
        id="LS-10",
        title="Each draft token has a row, and drafts are in the context only",
        statement=(
            "Under speculative decoding a request has a row per draft besides its own. The tokens "
            "before a row are the committed ones and this step's drafts in ctx.input_ids; a "
            "placeholder for a draft is -1. Drafts may be rejected; seq_lens_upper_bound_np may "
            "count those that the step before rejected."
        ),
        sources=(
            sentence(interface("LogitsContext", "this step's draft tokens are only in input_ids")),
            vllm(
                "v1/worker/gpu/spec_decode/rejection_sampler.py:_gather_draft_sampled_kernel",
                "draft slots in a step starting within the prefill are placeholders (-1)",
            ),
            vllm(
                "v1/worker/gpu/model_runner.py:GPUModelRunner.prepare_inputs",
                "CPU upper bound on seq_lens: the scheduler's count, which with async scheduling "
                "is made before it hears what was rejected",
            ),
        ),
        hint="Use pos + 1 for the number of tokens that a row may see, expanded_local_pos for its "
        "number within the request; never take -1 for a token, nor the bound for a length.",
        resembles=("vllm-project/vllm#39573",),
    ),
    Rule(
        id="LS-11",
        title="apply may be called several times in a step",
        statement=(
            "Where the logits of a step are larger than a gibibyte they are processed in parts of "
            "whole requests: each request is in one call of the step, not in the first."
        ),
        sources=(
            changes(
                vllm(
                    "v1/worker/gpu/spec_decode/rejection_sampler.py:RejectionSampler._verify_in_chunks",
                    "request_chunks: which requests are in a call depends on all others of the "
                    "step",
                )
            ),
        ),
        hint="Compute per-step values in apply_staged_writes or from ctx, not in the first apply.",
    ),
    Rule(
        id="LS-12",
        title="Steps without apply lose and advance nothing",
        statement=(
            "apply is left out where no request of the step needs it, and a request may be left "
            "out of a step: what a row becomes depends on tokens, not on calls."
        ),
        sources=(
            changes(
                vllm(
                    "v1/worker/gpu/sample/sampler.py:Sampler.apply_sampling_params",
                    "if not np.any(self.needs_logits_processing[idx_mapping_np]): return logits; "
                    "whether apply is called depends on the other requests of the step",
                )
            ),
        ),
        hint="Count tokens, not calls of apply or apply_staged_writes.",
    ),
    rules.takes_pauses("LS-48", SINCE),
    Rule(
        id="LS-14",
        title="add_request answers with a bool, and keeps its word",
        statement=(
            "The answer is True for every request whose rows apply may change: where all requests "
            "of a step were declined, apply is not called. Anything else than a bool ends the "
            "engine or means something else."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.add_request",
                    "Returns whether this processor modifies logits for the request",
                )
            ),
            vllm("v1/worker/gpu/sample/sampler.py:Sampler.add_request", "needs_processing |= ..."),
        ),
        hint="Return the condition by which apply finds its rows.",
        resembles=("vllm-project/vllm#54906",),
    ),
    Rule(
        id="LS-22",
        title="Nothing raises in add_request, apply_staged_writes or apply",
        statement="Whatever valid requests do, no call of the engine raises.",
        sources=(
            ends(
                vllm(
                    "v1/worker/gpu/model_runner.py:GPUModelRunner.add_requests",
                    "nothing catches what a processor raises: the engine ends",
                )
            ),
        ),
        hint="Refuse what you cannot serve in validate_params.",
        evidence=ALL,
    ),
    Rule(
        id="LS-24",
        title="Every call returns, and the process survives",
        statement="No call takes longer than seconds, and none ends the process.",
        sources=(
            vllm("v1/worker/gpu/model_runner.py:GPUModelRunner.sample", "called in every step"),
            STOPS,
        ),
        hint="Look for loops over logits that need not end, and for exits.",
        evidence=ALL,
    ),
    Rule(
        id="LS-29",
        title="Requests that the plugin leaves alone are declined",
        statement="add_request returns False for a request whose rows the plugin never changes.",
        sources=(
            interface(
                "LogitsProcessor.add_request",
                "Returns whether this processor modifies logits for the request",
            ),
        ),
        hint="The inherited add_request returns True: then logits are copied to float32 and "
        "processed for every request of the server.",
    ),
)
