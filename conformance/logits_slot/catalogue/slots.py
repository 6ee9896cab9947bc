# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about slots and rows: whose state is where."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_slot.catalogue.sources import ALL, GROWS, RAISES, RANKS, interface, vllm
from conformance.rules import Evidence, Rule, changes, ends, leaks, section, sentence

RULES = section(
    "Slots and rows",
    Rule(
        id="LS-03",
        title="A request gets the same rows among others as alone",
        statement=(
            "The rows of a request depend on its own parameters, tokens and logits only: not on "
            "its neighbours, its slot, its rows, how many requests there are, or which ones the "
            "process has served."
        ),
        sources=(
            sentence(
                interface("LogitsProcessor", "Per-request state is keyed by the request slot index")
            ),
        ),
        hint="Look for rows that are taken for slots (ctx.expanded_idx_mapping has that of each "
        "row), for one value kept for all requests, for caches whose key leaves out what their "
        "values depend on, for arithmetic over all rows, and for kept rows that apply returns: "
        "the sampler writes to them.",
        evidence=ALL,
    ),
    Rule(
        id="LS-04",
        title="Rows of requests that did not opt in come back bit for bit",
        statement="A request that does not enable the plugin gets its logits back unchanged.",
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.apply",
                    "including rows of requests this processor declined in add_request(), so "
                    "filter rows via ctx.expanded_idx_mapping",
                )
            ),
        ),
        hint="apply gets all rows as soon as one request needs it: change only those whose slot "
        "has opted in.",
        evidence=ALL,
    ),
    Rule(
        id="LS-06",
        title="add_request overwrites everything that the slot's last occupant left",
        statement=(
            "Slots are recycled without notice: there is no call when a request finishes. Nothing "
            "of an earlier request in a slot is felt by a later one, whether or not it opts in."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.add_request",
                    "The slot may hold a previous occupant's state; overwrite or neutralize all of"
                    " it here",
                )
            ),
        ),
        hint="Set every per-slot value in add_request before the first return, also for requests "
        "that are declined. Of all_token_ids[slot] only the tokens up to pos are the request's: "
        "behind them, and so at a negative index, stands what longer requests left.",
    ),
    Rule(
        id="LS-07",
        title="A row is neither a slot nor a request",
        statement=(
            "Rows are sorted anew in each step, and slots are handed out from the end of a list: "
            "the slot of a row is what ctx.expanded_idx_mapping says in this step."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsContext",
                    "A row is a logits row, not a request: rows are reordered every step",
                )
            ),
            vllm("v1/worker/gpu/model_runner.py:sort_batch_req_ids", "decodes before prefills"),
        ),
        hint="Index per-slot state with ctx.expanded_idx_mapping; remember no row index.",
    ),
    Rule(
        id="LS-16",
        title="Request states and context are only read",
        statement=(
            "The plugin writes to none of the buffers of req_states, and to nothing of the context."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcRequestState", "Processors must treat every field as read-only"
                )
            ),
        ),
        hint="Clone a tensor of req_states or ctx before changing it in place.",
    ),
    rules.keeps_parameters(
        "LS-40",
        interface("LogitsProcessor.add_request", "is handed the request's own SamplingParams"),
        (Evidence.SIMULATOR,),
    ),
    Rule(
        id="LS-17",
        title="prompt_len.gpu and prefill_len.gpu are looked up in each step",
        statement=(
            "After every step that adds requests they are other tensors than before: one that was "
            "kept is out of date."
        ),
        sources=(
            changes(
                vllm(
                    "v1/worker/gpu/buffer_utils.py:UvaBackedTensor.copy_to_uva",
                    "buffers are used in turn: one that was kept holds what others had in their "
                    "slots",
                )
            ),
            interface("LogitsProcRequestState", "reads always see current values"),
        ),
        hint="Keep req_states, not req_states.prompt_len.gpu.",
    ),
    Rule(
        id="LS-18",
        title="Tokens are not read in add_request",
        statement=(
            "all_token_ids and total_len still hold what was in the slot before when add_request "
            "is called; they are written before apply_staged_writes."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.apply_staged_writes",
                    "after the model runner has flushed req_states, so a processor that stages "
                    "writes here can read the request's tokens back on device",
                )
            ),
            leaks(
                vllm(
                    "v1/worker/gpu/states.py:RequestState.add_request",
                    "stage_write: until they are flushed a slot holds the tokens of whoever had it",
                )
            ),
        ),
        hint="Read tokens in apply_staged_writes or apply; prompt_len.np and prefill_len.np are "
        "right in add_request.",
    ),
    Rule(
        id="LS-25",
        title="Every process that runs the plugin computes the same rows",
        statement=(
            "Nothing that differs from rank to rank (process id, seeds, the rank itself) is felt "
            "in the rows."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/model_runner.py:GPUModelRunner.finish_requests",
                "every TP rank frees request slots in the same order",
            ),
            RANKS,
        ),
        hint="Look for global random state, the process id, and the order of sets.",
    ),
    Rule(
        id="LS-26",
        title="Memory is bounded by the number of slots",
        statement="Ten thousand requests leave no more behind than the slots can hold: no state, "
        "no file and no thread.",
        sources=(
            interface("LogitsProcessor", "Per-request state is keyed by the request slot index"),
            GROWS,
        ),
        hint="There is no call when a request finishes: keep state by slot, never by request.",
    ),
    Rule(
        id="LS-27",
        title="A batch may hold max_num_reqs requests, and more rows than requests",
        statement="State and scratch memory are sized by req_states.max_num_reqs, rows by logits.",
        sources=(
            sentence(
                interface(
                    "LogitsContext",
                    "under speculative decoding a request owns one row per draft token",
                )
            ),
        ),
        hint="Size per-slot tensors by req_states.max_num_reqs and per-row tensors by "
        "logits.shape[0].",
    ),
    Rule(
        id="LS-46",
        title="A request may be as long as max_model_len says",
        statement=(
            "State and scratch memory are sized by model_config.max_model_len, or grow: with "
            "40,960 tokens of context no call raises behind a prompt of 33,000 tokens, or where a "
            "request has as many outputs."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/states.py:RequestState.__init__",
                "all_token_ids has max_model_len columns",
            ),
            RAISES,
        ),
        hint="Size tensors by vllm_config.model_config.max_model_len, or read all_token_ids.",
    ),
    Rule(
        id="LS-47",
        title="The vocabulary may be larger than the tokenizer's",
        statement=(
            "Logits have as many columns as the model has rows in its embeddings, also where the "
            "tokenizer has fewer tokens, as of most models: no call raises there, also where a "
            "prompt or outputs have a token that the tokenizer does not know."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/model_runner.py:GPUModelRunner.__init__",
                "the size is model_config.get_vocab_size(), not that of the tokenizer",
            ),
            vllm(
                "renderers/base.py:BaseRenderer.validate_token_ids",
                "clients may send all token ids of the model, and allow a request no others",
            ),
            RAISES,
        ),
        hint="Size masks by req_states.vocab_size or logits.shape[1], never "
        "by len(tokenizer) or tokenizer.vocab_size.",
    ),
    Rule(
        id="LS-34",
        title="seq_lens_upper_bound_np may be longer than the batch",
        statement=(
            "Where seq_lens_upper_bound_np has more items than idx_mapping_np, the rows are those "
            "of a step in which it has as many; what is beyond the requests of the batch is 0."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/model_runner.py:GPUModelRunner.prepare_inputs",
                "a full CUDA graph runs for as many requests as it was captured for: "
                "padded entries left at zero",
            ),
            ends(
                vllm(
                    "v1/worker/gpu/sample/sampler.py:Sampler.__call__",
                    "hands the array on as it is, though the interface says [num_reqs]; what "
                    "raises over it ends the engine",
                )
            ),
        ),
        hint="Take ctx.seq_lens_upper_bound_np[: len(ctx.idx_mapping_np)]. CUDA graphs are the "
        "default on a GPU; an engine on a CPU never pads.",
    ),
)
