# SPDX-License-Identifier: Apache-2.0
"""The rules of ``logits/batch``, as data.

Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.rules import Evidence, Level, Rule, Source

DOCUMENT = "Custom Logits Processors"

SIMULATOR, OFFLINE, SERVER = Evidence
ENGINE = (SIMULATOR, OFFLINE)
ALL = (SIMULATOR, OFFLINE, SERVER)


def _document(says: str) -> Source:
    return Source(DOCUMENT, says, since="0.10.2")


def _vllm(symbol: str, says: str, since: str = "0.10.2") -> Source:
    return Source(symbol, says, since)


RULES = (
    Rule(
        id="LB-01",
        title="The class loads in every documented way",
        statement=(
            "The target imports, is a concrete subclass of "
            "vllm.v1.sample.logits_processor.LogitsProcessor, and vLLM's loader finds it by its "
            "fully-qualified name; an engine and a server start with it."
        ),
        level=Level.MUST,
        sources=(
            _document("must subclass LogitsProcessor and define (at minimum) four methods"),
            _vllm(
                "v1/sample/logits_processor/__init__.py:_load_logitsprocs_by_fqcns",
                "a name is <module>:<type>, the object a subclass of LogitsProcessor",
            ),
        ),
        hint="Import the module in a plain Python shell; check the base class and that "
        "__init__, apply, is_argmax_invariant and update_state are all defined.",
        evidence=ALL,
        resembles=("vllm-project/vllm-metal#124",),
    ),
    Rule(
        id="LB-02",
        title="The constructor takes (vllm_config, device, is_pin_memory), any number of times",
        statement=(
            "Instances are made with exactly three positional arguments, on any device, more than "
            "once in a process, and share no request state."
        ),
        level=Level.MUST,
        sources=(
            _document("__init__(self, vllm_config, device, is_pin_memory)"),
            _vllm(
                "v1/sample/logits_processor/__init__.py:build_logitsprocs",
                "ctor(vllm_config, device, is_pin_memory)",
            ),
        ),
        hint="Compare the signature of __init__ with the documented one; keep state on self.",
    ),
    Rule(
        id="LB-03",
        title="A request gets the same row in a batch as alone",
        statement=(
            "The row of a request depends on its own parameters, prompt, outputs and logits only: "
            "not on its neighbours, its row index, or how many requests there are."
        ),
        level=Level.MUST,
        sources=(
            _document(
                "for all requests which enable the logits processor, it applies a transformation "
                "to the corresponding row"
            ),
        ),
        hint="Look for one value kept for all requests, for arithmetic over the batch dimension, "
        "and for scratch tensors whose rows are not batch rows.",
        evidence=ALL,
        resembles=("vllm-project/vllm#5329", "RBLN-SW/vllm-rbln#1033"),
    ),
    Rule(
        id="LB-04",
        title="Rows of requests that did not opt in come back bit for bit",
        statement="A request that does not enable the plugin gets its logits back unchanged.",
        level=Level.MUST,
        sources=(_document("while leaving other rows unmodified"),),
        hint="Index the rows of opted-in requests explicitly; do not add or multiply by a neutral "
        "value over the whole batch.",
        evidence=ALL,
        resembles=("vllm-project/vllm#51890",),
    ),
    Rule(
        id="LB-05",
        title="A request that opts in is changed at least once",
        statement="Each parameter set that the profile declares as `on` changes a row.",
        level=Level.MUST,
        sources=(
            _document("the transformed logits tensor is then passed to softmax"),
            _document("return a transformed (num_requests) x (vocab_size) logits tensor"),
        ),
        hint="Check that apply returns the tensor it changed, and that the extra_args key is "
        "spelled as in the profile; parameters that act only after many tokens need a smaller "
        "value in the profile.",
        evidence=ALL,
        resembles=("Entropic-Science/qr-sampler@db9c33c",),
    ),
    Rule(
        id="LB-06",
        title="A request that takes over a row starts clean",
        statement=(
            "When a finished request is replaced, its index appears in `added` only: adding must "
            "overwrite or clear whatever the row's previous occupant left."
        ),
        level=Level.MUST,
        sources=(
            _document("use Add operations to replace as many finished requests with new requests"),
            _document("discards information about requests which are replaced by an Add"),
            _vllm(
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
        level=Level.MUST,
        sources=(
            _document("apply a Unidirectional Move to fill the empty slot"),
            _vllm(
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
        level=Level.MUST,
        sources=(
            _document("zero or more Swap Move operations may be applied to reorder the batch"),
            _vllm("v1/sample/logits_processor/builtin.py:process_dict_updates", "pops both ends"),
        ),
        hint="Pop both ends first, then write back each that had state; never read with .get and "
        "assign.",
        resembles=("vllm-project/vllm#49613", "vllm-project/vllm#51890"),
    ),
    Rule(
        id="LB-09",
        title="update_state(None) is an ordinary step",
        statement=(
            "In steps without a change of the batch update_state receives None: it neither raises "
            "nor forgets, and what depends on the outputs so far is refreshed as in any other step."
        ),
        level=Level.MUST,
        sources=(
            _document("batch update may be None, signaling no change to the batch constituents"),
            _vllm(
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
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/sample/logits_processor/interface.py:BatchUpdate",
                "output_tok_ids is a reference to the request's running output tokens list",
            ),
            _document("updated output_token_ids lists that it could have retained when added"),
        ),
        hint="Store the list itself; list(...), slices and tensors made from it are snapshots.",
    ),
    Rule(
        id="LB-11",
        title="A resumed request continues as if never interrupted",
        statement=(
            "A preempted request leaves the batch and is added again with the outputs it already "
            "has: its rows are those of a request that was never interrupted."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._update_states",
                "resumed requests are added with their output tokens",
            ),
        ),
        hint="Derive all state from (params, prompt, outputs) when a request is added; do not "
        "count steps.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#29045",),
    ),
    Rule(
        id="LB-12",
        title="A claim of argmax invariance is true",
        statement=(
            "A processor that claims it never changes which token has the highest logit, for any "
            "logits: ties, masked rows, negative and scaled ones included."
        ),
        level=Level.MUST,
        sources=(
            _document("True if the logits processor never changes the highest-logit token"),
            _vllm("v1/sample/sampler.py:Sampler.sample", "skipped when all requests are greedy"),
        ),
        hint="If the plugin masks, forces or biases tokens, return False: with True it is skipped "
        "for greedy requests.",
        resembles=("vllm-project/vllm#28617", "deepseek-ai/DeepSeek-OCR#231"),
    ),
    Rule(
        id="LB-13",
        title="is_argmax_invariant returns the same bool for ever",
        statement="The claim is a bool, and does not change while the engine runs.",
        level=Level.MUST,
        sources=(
            _document("is_argmax_invariant() is evaluated once at startup"),
            _vllm(
                "v1/sample/logits_processor/state.py:LogitsProcessors.__init__",
                "splits the processors by it once",
            ),
        ),
        hint="Decide it in __init__, from the configuration; not from requests.",
    ),
    Rule(
        id="LB-14",
        title="apply returns a tensor of the shape, dtype and device it was given",
        statement="apply returns float logits [num_requests, vocab_size], in place or new ones.",
        level=Level.MUST,
        sources=(
            _document("return a transformed (num_requests) x (vocab_size) logits tensor"),
            _vllm(
                "v1/sample/logits_processor/interface.py:LogitsProcessor.apply",
                "the updated tensor must be returned but may be modified in-place",
            ),
        ),
        hint="Every path of apply must return a tensor, early returns included.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-15",
        title="Bad arguments are refused at admission, with ValueError",
        statement=(
            "validate_params raises ValueError or VLLMValidationError for the profile's `invalid` "
            "requests, and for none of the others: HTTP 400 for that request and nothing else."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/sample/logits_processor/interface.py:LogitsProcessor.validate_params",
                "raise VLLMValidationError / ValueError for invalid params",
                since="0.11.2",
            ),
        ),
        hint="Check type and range in the classmethod validate_params; whatever is noticed later "
        "ends the engine.",
        evidence=ALL,
        resembles=(
            "Entropic-Science/qr-sampler@439e1b3",
            "vllm-project/vllm#27560",
            "vllm-project/vllm#16529",
        ),
    ),
    Rule(
        id="LB-16",
        title="update_state and apply never raise",
        statement="For requests that were admitted no call of the engine raises.",
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/engine/core.py:EngineCore",
                "an exception in the model runner ends the engine and every request in it",
            ),
        ),
        hint="Nothing catches it: one request's bad value ends all requests. Validate at "
        "admission, and look up rows with .pop(index, None).",
        evidence=ALL,
        resembles=("Entropic-Science/qr-sampler@439e1b3", "vllm-project/vllm-metal#577"),
    ),
    Rule(
        id="LB-17",
        title="Placeholders of async scheduling are not taken for tokens",
        statement=(
            "With async scheduling the newest output is -1 during update_state and real during "
            "apply: rows are those of a synchronous engine."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
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
        id="LB-18",
        title="Rows of unfinished prefills change nothing",
        statement=(
            "apply also receives rows of requests whose prefill is not finished, and their samples "
            "are discarded: later rows of the request do not depend on how often that happened."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner._bookkeeping_sync",
                "samples of unfinished prefills are discarded",
            ),
        ),
        hint="Derive progress from len(output_tok_ids); do not count calls of apply.",
        evidence=ENGINE,
        resembles=("vllm-project/vllm#29045",),
    ),
    Rule(
        id="LB-19",
        title="A removed request is forgotten",
        statement=(
            "State of an index in `removed` is dropped: it neither acts on a later request nor on "
            "rows that do not exist."
        ),
        level=Level.MUST,
        sources=(_document("apply Remove operations to finished requests"),),
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
        level=Level.MUST,
        sources=(
            _document("must process operations in the following order: removes, adds, moves"),
            _document("Move operations can be assumed to be applied in the order they appear"),
        ),
        hint="Do not move from a snapshot of the old state, and do not sort moves.",
        resembles=("torch-spyre/sendnn-inference@07928f2f",),
    ),
    Rule(
        id="LB-21",
        title="Parameters, prompts and outputs are read only",
        statement="The plugin writes to nothing that it is handed but the logits.",
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/sample/logits_processor/interface.py:BatchUpdate",
                "lists are references to the engine's own",
            ),
        ),
        hint="Use .get instead of .pop on extra_args; copy a list before changing it.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-22",
        title="A token is left to sample, and no logit is NaN",
        statement=(
            "A row of finite logits keeps at least one token above -inf, and no row gets NaN, "
            "masked rows included."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/sample/sampler.py:Sampler.sample",
                "sampling from a row without a finite logit is undefined",
            ),
        ),
        hint="Grammar and allowed-token masks put -inf into rows before the plugin sees them: "
        "(-inf) - (-inf) and 0 * inf are NaN.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-23",
        title="The same history gives the same rows",
        statement=(
            "Rows depend on nothing but the request: no global random state, no clock. Every "
            "tensor-parallel rank runs the plugin for itself and must get the same."
        ),
        level=Level.MUST,
        sources=(
            _vllm(
                "v1/worker/gpu_model_runner.py:GPUModelRunner.sample_tokens",
                "all ranks apply logits processors to the gathered logits",
            ),
        ),
        hint="Use a generator seeded from the request where randomness is wanted.",
    ),
    Rule(
        id="LB-24",
        title="Every call returns, and the process lives",
        statement=(
            "No call of the engine hangs, exits or crashes the process: there is one engine loop "
            "for all requests."
        ),
        level=Level.MUST,
        sources=(_document("vLLM will invoke update_state() and apply() in every engine step"),),
        hint="Look for loops without a bound, locks, network calls, sys.exit and native code.",
        evidence=ALL,
    ),
    Rule(
        id="LB-25",
        title="A request without prompt token ids is served",
        statement=(
            "The prompt of an added request may be None, where it was given as embeddings: "
            "the plugin serves it, or leaves it alone, and does not raise."
        ),
        level=Level.SHOULD,
        sources=(
            _vllm(
                "v1/sample/logits_processor/interface.py:AddedRequest",
                "prompt_tok_ids is list[int] | None",
                since="0.11.2",
            ),
        ),
        hint="Treat None as an empty prompt. Only a SHOULD: vLLM's own adapter for request-level "
        "callables of three arguments raises here, and prompt embeddings are off by default.",
    ),
)
