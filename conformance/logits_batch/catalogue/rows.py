# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about rows, and requests that come, go and move."""

from __future__ import annotations

from conformance.logits_batch.catalogue.sources import ALL, ENGINE, RAISES, document, vllm
from conformance.rules import Rule, section, sentence

RULES = section(
    "Rows and moves",
    Rule(
        id="LB-03",
        title="A request gets the same row in a batch as alone",
        statement=(
            "The row of a request depends on its own parameters, prompt, outputs and logits only: "
            "not on its neighbours, its row index, how many requests there are, or which ones the "
            "process has served."
        ),
        sources=(
            sentence(
                document(
                    "For all requests which enable the logits processor, the logits processor "
                    "applies a transformation to the corresponding row of the logits tensor"
                )
            ),
        ),
        hint="Look for one value kept for all requests, for caches whose key leaves out what their "
        "values depend on, for arithmetic over the batch dimension, for scratch tensors whose "
        "rows are not batch rows, and for kept rows that apply returns: the sampler writes there.",
        evidence=ALL,
        resembles=("vllm-project/vllm#5329", "RBLN-SW/vllm-rbln#1033"),
    ),
    Rule(
        id="LB-04",
        title="Rows of requests that did not opt in come back bit for bit",
        statement="A request that does not enable the plugin gets its logits back unchanged.",
        sources=(sentence(document("while leaving other rows unmodified")),),
        hint="Index the rows of opted-in requests explicitly; do not add or multiply by a neutral "
        "value over the whole batch.",
        evidence=ALL,
        resembles=("vllm-project/vllm#51890",),
    ),
    Rule(
        id="LB-06",
        title="A request that takes over a row starts clean",
        statement=(
            "When a finished request is replaced, its index appears in `added` only: adding must "
            "overwrite or clear whatever the row's previous occupant left. "
            "This holds for a plugin that identifies requests by the `id()` of their lists or "
            "parameters, too: Python reuses the addresses of freed objects."
        ),
        sources=(
            document("Use Add operations to replace as many finished requests with new requests"),
            sentence(
                document("discards information about ... requests which are replaced by an Add")
            ),
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch._register_add_request",
                "a reused index is popped from `removed`",
            ),
        ),
        hint="In the loop over `added`, clear the index when the newcomer does not opt in.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#23401",),
    ),
    Rule(
        id="LB-07",
        title="A one-way move clears its destination and its source",
        statement=(
            "After (a, b, UNIDIRECTIONAL) row b holds what a held, or nothing if a held nothing, "
            "and row a holds nothing; b may still hold a finished request and is not in `removed`."
        ),
        sources=(
            sentence(document("apply a Unidirectional Move ... to fill the empty slot")),
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch.condense",
                "destinations are popped from `removed`",
            ),
        ),
        hint="Pop both ends first, then write the destination only if the source had state.",
        evidence=ENGINE,
        resembles=("torch-spyre/sendnn-inference@07928f2f",),
    ),
    Rule(
        id="LB-08",
        title="A swap with one side empty moves the state and leaves the other side empty",
        statement="(a, b, SWAP) exchanges the state of both rows, also where one has none.",
        sources=(
            sentence(
                document("zero or more Swap Move operations may be applied to reorder the batch")
            ),
            vllm("v1/sample/logits_processor/builtin.py:process_dict_updates", "pops both ends"),
        ),
        hint="Pop both ends first, then write back each that had state; never read with .get and "
        "assign.",
        resembles=("vllm-project/vllm#49613", "vllm-project/vllm#51890"),
    ),
    Rule(
        id="LB-19",
        title="A removed request is forgotten",
        statement=(
            "State of an index in `removed` is dropped: it neither acts on a later request nor on "
            "rows that do not exist."
        ),
        sources=(sentence(document("Apply Remove operations to finished requests")),),
        hint="Process `removed` in every update, with .pop(index, None).",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-20",
        title="Adds come before moves, and moves in their order",
        statement=(
            "Indices in `added` are those before any move; moves are applied one after the other, "
            "each to the result of the one before."
        ),
        sources=(
            sentence(
                document(
                    "must process batch update operations in the following order: removes, adds, "
                    "moves"
                )
            ),
            document(
                "Move operations can be assumed to be applied in the order in which they appear"
            ),
        ),
        hint="Do not move from a snapshot of the old state, and do not sort moves.",
        resembles=("torch-spyre/sendnn-inference@07928f2f",),
    ),
    Rule(
        id="LB-30",
        title="A batch may hold as many requests as max_num_seqs says",
        statement=(
            "State and scratch memory are sized by scheduler_config.max_num_seqs, or grow: the "
            "last row of a full batch is served as the first."
        ),
        sources=(
            sentence(document("Consume a (num_requests) x (vocab_size) logits tensor")),
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.__init__",
                "max_num_reqs is scheduler_config.max_num_seqs",
            ),
        ),
        hint="Size tensors by vllm_config.scheduler_config.max_num_seqs, never by a constant.",
    ),
    Rule(
        id="LB-49",
        title="A request may be as long as max_model_len says",
        statement=(
            "State and scratch memory are sized by model_config.max_model_len, or grow: with "
            "40,960 tokens of context no call raises behind a prompt of 33,000 tokens, or where a "
            "request has as many outputs."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch.add_request",
                "a prompt of any length up to max_model_len is stored, and handed to the "
                "processors",
            ),
            RAISES,
        ),
        hint="Size tensors by vllm_config.model_config.max_model_len, never by a constant, or keep "
        "the tokens that are needed only.",
    ),
    Rule(
        id="LB-50",
        title="The vocabulary may be larger than the tokenizer's",
        statement=(
            "Logits have as many columns as the model has rows in its embeddings, also where the "
            "tokenizer has fewer tokens, as of most models: no call raises there, also where a "
            "prompt or outputs have a token that the tokenizer does not know."
        ),
        sources=(
            vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.__init__",
                "the size is model_config.get_vocab_size(), not that of the tokenizer",
            ),
            vllm(
                "renderers/base.py:BaseRenderer.validate_token_ids",
                "clients may send all token ids of the model, and allow a request no others",
            ),
            RAISES,
        ),
        hint="Size masks by vllm_config.model_config.get_vocab_size() or logits.shape[1], never "
        "by len(tokenizer) or tokenizer.vocab_size.",
    ),
)
