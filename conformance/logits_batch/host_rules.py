# SPDX-License-Identifier: Apache-2.0
"""What a host owes a batch logits processor, as data.

The other side of the contract: these rules are about vLLM, a fork of it or a hardware plugin,
and are judged in :mod:`conformance.logits_batch.host_check`.
Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from functools import partial

from conformance.hosts import rule
from conformance.logits_batch.catalogue import sources
from conformance.logits_batch.catalogue.sources import vllm
from conformance.rules import Evidence, Source, sentence

UPDATES = "Batch updates"
REQUESTS = "What is said about a request"
CALLS = "Calls"


def document(says: str) -> Source:
    """Return a sentence of the document, which is why the rule is a MUST."""
    return sentence(sources.document(says))


def interface(symbol: str, says: str, since: str = sources.SINCE) -> Source:
    """Return a type or a docstring of the interface, which is why the rule is a MUST."""
    return sentence(vllm(f"v1/sample/logits_processor/{symbol}", says, since))


_rule = partial(rule, evidence=(Evidence.OFFLINE,))

RULES = (
    _rule(
        "HB-01",
        UPDATES,
        "None is sent exactly when no row changed",
        "`update_state` gets None in a step in which nobody joins, leaves or moves, and a "
        "`BatchUpdate` that lists something in every other step; swaps alone are a change.",
        "Look for a shortcut that tests for additions and removals only.",
        document(
            "If there are no new/finished requests and there is no batch reordering, then the "
            "batch update for the logits processors will be `None`"
        ),
        vllm(
            "v1/sample/logits_processor/state.py:BatchUpdateBuilder.get_and_reset",
            "`if not any((self._removed, self.moved, self.added)): return None`",
        ),
    ),
    _rule(
        "HB-02",
        UPDATES,
        "Removed indices are rows whose requests have left",
        "Each index in `removed` held a request before the step, is listed once, and is not "
        "the source of a one-way move.",
        "Look at what is registered as removed when condensing, and when a request is removed "
        "that is not in the batch.",
        document("Apply Remove operations to finished requests which were not replaced"),
        vllm(
            "v1/worker/gpu_input_batch.py:InputBatch.remove_request",
            "a request that is not in the batch is not registered",
        ),
    ),
    _rule(
        "HB-03",
        UPDATES,
        "No index is both added and removed",
        "The index of a replaced request is in `added` only: processors may take removes first "
        "or adds first, as vLLM's own do.",
        "Take an index out of `removed` when a request is added there.",
        document("Use Add operations to replace as many finished requests with new requests"),
        vllm(
            "v1/worker/gpu_input_batch.py:InputBatch._register_add_request",
            "a reused index is popped from `removed`",
        ),
    ),
    _rule(
        "HB-04",
        UPDATES,
        "Requests are added to the lowest free row, else to the next",
        "Added requests replace those that left in order of increasing index and then extend the "
        "batch consecutively; the index is the one at the time of the add, before any move.",
        "Look at the order in which free rows are handed out, and at indices looked up after the "
        "batch was reordered.",
        document("in order of increasing index of the replaced request starting with the lowest"),
        document(
            "The index argument for Add operations refers to the index at the time the Add "
            "occurred, i.e. before any Move operations"
        ),
    ),
    _rule(
        "HB-05",
        UPDATES,
        "One-way moves fill the lowest hole from the highest row, in order",
        "One-way moves make the batch contiguous: destinations increase, sources decrease, every "
        "source held a request and every destination is empty.",
        "Compare with `InputBatch.condense`; look for moves that are collected and sorted.",
        document(
            "apply a Unidirectional Move from the current highest non-empty slot in the batch to "
            "fill the empty slot"
        ),
        document(
            "Move operations can be assumed to be applied in the order in which they appear in "
            "`BatchUpdate.moved`"
        ),
    ),
    _rule(
        "HB-06",
        UPDATES,
        "Swaps follow the one-way moves and exchange two requests",
        "A backend that reorders the batch does so when it is contiguous: each swap names two "
        "different rows below `batch_size`.",
        "Look at where the attention backend reorders the batch.",
        document("zero or more Swap Move operations may be applied to reorder the batch"),
        vllm(
            "v1/worker/gpu_model_runner.py:GPUModelRunner._update_states",
            "`condense()`, then `_may_reorder_batch()`",
        ),
    ),
    _rule(
        "HB-07",
        UPDATES,
        "batch_size is the number of requests after the step's changes",
        "`batch_size` counts the requests in the batch after removes, adds and moves, and they are "
        "in rows 0 to `batch_size` - 1.",
        "Read the size after condensing, not before.",
        document(
            "after condensing, update `BatchUpdate.batch_size` to reflect the number of non-empty "
            "slots"
        ),
    ),
    _rule(
        "HB-08",
        UPDATES,
        "Updates lead to the rows that the batch has",
        "After a step's update the requests that are scheduled are in the batch and no others, "
        "each in the row in which the runner has it.",
        "Look for a change of the batch that is not registered: every add, remove, move and swap "
        "must be.",
        document("Consume a `BatchUpdate` data structure representing persistent batch state"),
        vllm(
            "v1/worker/gpu_model_runner.py:GPUModelRunner._update_states",
            "finished and unscheduled requests are removed, new and resumed ones added",
        ),
    ),
    _rule(
        "HB-09",
        REQUESTS,
        "The list of output tokens stays live",
        "The list in `added` is the request's running list of output tokens: until the request "
        "leaves the batch, it holds every token sampled so far, in every step.",
        "Look for a copy of the list, and for a list that is replaced rather than extended.",
        document("the updated `output_token_ids` lists that it could have retained"),
        vllm(
            "v1/sample/logits_processor/interface.py:BatchUpdate",
            "`output_tok_ids` is a reference to the request's running output tokens list",
        ),
    ),
    _rule(
        "HB-10",
        REQUESTS,
        "A resumed request comes with its outputs",
        "A request that was preempted is added again with the output tokens it had.",
        "Look at how the state of a resumed request is rebuilt.",
        interface(
            "interface.py:BatchUpdate",
            "via this reference, the logits processors always see the latest list of generated "
            "output tokens",
        ),
        vllm(
            "v1/worker/gpu_model_runner.py:GPUModelRunner._update_states",
            "`req_state.output_token_ids = resumed_token_ids[-num_output_tokens:]`",
        ),
    ),
    _rule(
        "HB-11",
        REQUESTS,
        "Placeholders stand for the newest tokens, and are gone when apply is called",
        "With asynchronous scheduling the list may end in -1 when `update_state` is called; no "
        "earlier token is -1, and none is when `apply` is called.",
        "Call `update_async_output_token_ids` before the sampler.",
        interface(
            "interface.py:BatchUpdate",
            "via this reference, the logits processors always see the latest list of generated "
            "output tokens",
        ),
        vllm(
            "v1/worker/gpu_input_batch.py:InputBatch.update_async_output_token_ids",
            "called right before they are needed by the logits processors",
            since="0.11.2",
        ),
    ),
    _rule(
        "HB-12",
        REQUESTS,
        "Prompt tokens arrive as they were sent",
        "`added` holds the token ids of the whole prompt, whatever part of it is computed, and "
        "nothing else, also when a request is resumed.",
        "Look for padding, truncation, and outputs counted as prompt when a request is resumed.",
        interface(
            "interface.py:AddedRequest",
            "(index, params, prompt_tok_ids, output_tok_ids)",
        ),
    ),
    _rule(
        "HB-13",
        REQUESTS,
        "Sampling parameters and extra_args arrive as they were sent",
        "`added` holds the request's own `SamplingParams`, with the `extra_args` that the user "
        "sent.",
        "Look at how parameters are serialised between front end and engine.",
        document(
            "custom logits processors may leverage vLLM custom arguments support to receive "
            "configuration settings from the user"
        ),
    ),
    _rule(
        "HB-14",
        CALLS,
        "update_state is called once in every step, before apply",
        "In every step that computes tokens each processor's `update_state` is called exactly "
        "once, also when nothing changed, and before `apply`.",
        "Look for a call that is made only when the batch changed.",
        document("persistent batch state changes at the beginning of the current engine step"),
        document("the LogitsProcessor might still want to update its state"),
    ),
    _rule(
        "HB-15",
        CALLS,
        "apply gets one float32 row for each request",
        "`apply` is called with a float32 tensor `[num_requests, vocab_size]`.",
        "Look for padding of the batch, for a subset of rows, and for the model's own dtype.",
        document("Consume a `(num_requests) x (vocab_size)` logits tensor"),
        vllm(
            "v1/sample/sampler.py:Sampler.forward",
            "`logits = logits.to(torch.float32)` before the processors",
        ),
    ),
    _rule(
        "HB-16",
        CALLS,
        "Processors that may change the argmax are applied in every step",
        "A processor whose `is_argmax_invariant()` is False is applied exactly once in each step "
        "that samples a token, also when all requests are greedy.",
        "Look for a fast path for greedy batches.",
        document("`False` if the logits processor may modify argmax"),
        vllm(
            "v1/sample/sampler.py:Sampler.apply_logits_processors",
            "non-invariant processors are applied before the greedy sample is taken",
        ),
    ),
    _rule(
        "HB-17",
        CALLS,
        "Argmax-invariant processors are skipped when all requests are greedy, and only then",
        "A processor whose `is_argmax_invariant()` is True is applied once in each step that "
        "samples from a request with a temperature, and never in an all-greedy batch.",
        "Look at where the greedy sample is taken, and on what condition sampling ends there.",
        document(
            "if `True`, vLLM will skip applying this logits processor in a given step when all "
            "requests use greedy sampling"
        ),
    ),
    _rule(
        "HB-18",
        CALLS,
        "validate_params is asked before a request is admitted, and its refusal holds",
        "Each processor's `validate_params` is asked about a request before `update_state` gets "
        "it; when it raises `ValueError` the client gets an error, and the request never comes.",
        "Give the processors to the front end's check of parameters.",
        interface(
            "interface.py:LogitsProcessor.validate_params",
            "Validate sampling params for this logits processor",
            since="0.14.0",
        ),
        vllm(
            "v1/sample/logits_processor/__init__.py:validate_logits_processors_parameters",
            "asks every custom processor",
            since="0.14.0",
        ),
    ),
    _rule(
        "HB-19",
        CALLS,
        "Processors are built with the configuration, the device and is_pin_memory",
        "The constructor gets a `VllmConfig`, a `torch.device` and a bool, in this order.",
        "Compare with `build_logitsprocs`.",
        document(
            "`__init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool)`"
        ),
    ),
    _rule(
        "HB-20",
        CALLS,
        "Tokens are sampled from what apply returns, row by row",
        "The token that a request gets is drawn from its own row of the tensor that `apply` "
        "returned, whether that is the tensor it was given or another one.",
        "Look for a return value that is dropped, and for rows reordered around the processors.",
        document("You can modify the input logits processors in-place or out-of-place"),
    ),
)

#: Rules about what not every host does.
OPTIONAL = {
    "HB-06": "this host did not reorder its batches",
    "HB-11": "this host does not schedule asynchronously",
}

#: What must have been seen for a rule with several sides to be shown.
SIDES = {
    "HB-01": {"None", "an update"},
    "HB-16": {"an all-greedy batch", "a mixed batch"},
    "HB-17": {"an all-greedy batch", "a mixed batch"},
    "HB-18": {"an admission", "a refusal"},
}
