# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about outputs, and what happens from step to step."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_batch.catalogue.sources import (
    EDGE_CASES,
    ENGINE,
    RANKS,
    SINCE,
    document,
    vllm,
)
from conformance.rules import Rule, Source, changes, section, sentence

RULES = section(
    "Outputs and time",
    Rule(
        id="LB-09",
        title="update_state(None) is an ordinary step",
        statement=(
            "In steps without a change of the batch update_state receives None: it neither raises "
            "nor forgets, and what depends on the outputs so far is refreshed as in any other step."
        ),
        sources=(
            sentence(document("may be None, signaling no change to the batch constituents")),
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch.refresh_metadata",
                "update_state is called in every step",
            ),
        ),
        hint="Return early for the bookkeeping of rows only; refresh per-step values after it.",
        evidence=ENGINE,
        resembles=("torch-spyre/sendnn-inference#544", "torch-spyre/sendnn-inference#545"),
    ),
    Rule(
        id="LB-10",
        title="Output tokens are read from the live list",
        statement=(
            "`output_tok_ids` of an added request is a reference that grows with every token; "
            "a plugin whose effect depends on outputs keeps the reference, not a copy."
        ),
        sources=(
            sentence(
                vllm(
                    "v1/sample/logits_processor/interface.py:BatchUpdate",
                    "output_tok_ids is a reference to the request's running output tokens list",
                )
            ),
            document("the updated output_token_ids lists that it could have retained"),
        ),
        hint="Store the list itself; list(...), slices and tensors made from it are snapshots.",
    ),
    Rule(
        id="LB-11",
        title="A resumed request continues as if never interrupted",
        statement=(
            "A preempted request leaves the batch and is added again with the outputs it already "
            "has. Where keys and values fail to load, it stays in the batch, and its row is "
            "computed again for the same outputs. Later rows are those of a request that was never "
            "interrupted."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._update_states",
                "resumed requests are added with their output tokens",
            ),
            Source(
                "vllm-project/vllm#19330, Add Support for KV Load Failure Recovery",
                "requests whose keys and values failed to load are computed again "
                "(Scheduler._handle_invalid_blocks), and the token of that step is taken back",
            ),
            EDGE_CASES,
        ),
        hint="Derive all state from (params, prompt, outputs) when a request is added; do not "
        "count steps.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#29045",),
    ),
    Rule(
        id="LB-17",
        title="Placeholders of async scheduling are not taken for tokens",
        statement=(
            "With async scheduling the newest output is -1 during update_state and real during "
            "apply: rows are those of a synchronous engine."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch.update_async_output_token_ids",
                "placeholders are replaced right before the logits processors run",
                since="0.14",
            ),
        ),
        hint="Read outputs in apply, not in update_state; async scheduling is on by default on "
        "GPUs.",
        resembles=("vllm-project/vllm#52461",),
    ),
    Rule(
        id="LB-45",
        title="Tokens that never become known are not taken for others",
        statement=(
            "An engine that found the plugin by its entry point, and schedules asynchronously, "
            "leaves -1 in apply for every output. Once a request with penalties or bad words is in "
            "the batch, the newest one is replaced and those before it are dropped. Nothing "
            "raises, each request gets the row that it gets alone with such a list, and -1 is not "
            "the last token of the vocabulary."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.__init__",
                "logitsprocs_need_output_token_ids=bool(custom_logitsprocs), which holds what was "
                "named to the engine and no entry points",
                since="0.14",
            ),
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch.update_async_output_token_ids",
                "returns where no list of outputs is needed, and later leaves as many placeholders "
                "as there are ids",
                since="0.14",
            ),
        ),
        hint="Skip -1 in apply, too: a negative index counts from the end in Python and in torch, "
        "and is an error in scatter_, gather and a dictionary. Do not count on a list that "
        "never becomes shorter. Operators had better name the class to the engine.",
        resembles=("vllm-project/vllm#52461",),
    ),
    Rule(
        id="LB-18",
        title="Rows of unfinished prefills change nothing",
        statement=(
            "apply also receives rows of requests whose prefill is not finished, and their samples "
            "are discarded: later rows of the request do not depend on how often that happened."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._bookkeeping_sync",
                "samples of unfinished prefills are discarded",
            ),
            EDGE_CASES,
        ),
        hint="Derive progress from len(output_tok_ids); do not count calls of apply.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#29045",),
    ),
    Rule(
        id="LB-21",
        title="Prompts and outputs are read only",
        statement="The plugin writes to no list of tokens that it is handed.",
        sources=(
            vllm(
                "v1/sample/logits_processor/interface.py:BatchUpdate",
                "lists are references to the engine's own",
            ),
            changes(
                vllm(
                    "v1/worker/gpu_input_batch.py:InputBatch.add_request",
                    "a resumed request is computed from these lists, and its keys and values are "
                    "shared by the tokens that the client sent",
                )
            ),
        ),
        hint="Copy a list before changing it.",
    ),
    rules.takes_pauses("LB-51", SINCE),
    rules.keeps_parameters(
        "LB-43",
        vllm(
            "v1/worker/gpu_input_batch.py:CachedRequestState",
            "holds sampling_params, from which the request is added again when it resumes",
        ),
        ENGINE,
    ),
    Rule(
        id="LB-23",
        title="The same history gives the same rows",
        statement=(
            "Rows depend on nothing but the request: no global random state, no clock. Every "
            "tensor-parallel rank runs the plugin for itself and must get the same."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.sample_tokens",
                "all ranks apply logits processors to the gathered logits",
            ),
        ),
        hint="Use a generator seeded from the request where randomness is wanted.",
    ),
    Rule(
        id="LB-26",
        title="Steps without apply lose nothing",
        statement=(
            "update_state is called in every step; apply is not where nothing is scheduled and, "
            "for a processor that claims argmax invariance, where every request is greedy. Later "
            "rows are as if it had been called."
        ),
        sources=(
            sentence(
                document(
                    "vLLM will skip applying this logits processor in a given step when all "
                    "requests use greedy sampling"
                )
            ),
            vllm(
                "v1/sample/sampler.py:Sampler.sample",
                "returns before the argmax-invariant processors when all requests are greedy",
            ),
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.execute_model",
                "updates the batch, and returns when no tokens are scheduled",
            ),
        ),
        hint="Do all bookkeeping in update_state; a flag or an update that waits for apply must "
        "survive several calls of update_state.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-27",
        title="Finished requests leave nothing behind",
        statement=(
            "After ten thousand requests a plugin holds no more than after a few: no parameters, "
            "prompts, outputs or logits of finished requests, no file or thread, and no growing "
            "state of its own, also where update_state is called and apply is not."
        ),
        sources=(
            sentence(
                document(
                    "Ensure that ... update_state ... discards information about finished requests"
                )
            ),
        ),
        hint="Look for dictionaries keyed by something other than the row, for caches without a "
        "limit, for lists that are only appended to, and for what only close or join ends.",
    ),
    Rule(
        id="LB-33",
        title="Every process that runs the plugin computes the same",
        statement=(
            "Each tensor-parallel rank has an instance of its own in a process of its own; all get "
            "the same updates and logits and must return the same rows."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.sample_tokens",
                "all ranks apply logits processors to the gathered logits and sample by themselves",
            ),
            RANKS,
        ),
        hint="Process ids, the order of sets of strings, hash() of strings and unseeded generators "
        "differ from rank to rank.",
    ),
)
