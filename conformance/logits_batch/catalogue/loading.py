# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about loading, construction and admission."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_batch.catalogue.sources import (
    ALL,
    OFFLINE,
    RAISES,
    SERVER,
    SINCE,
    STOPS,
    document,
    vllm,
)
from conformance.rules import Rule, section, sentence

RULES = section(
    "Loading and admission",
    Rule(
        id="LB-01",
        title="The class loads in every documented way",
        statement=(
            "The target imports, is a concrete subclass of "
            "vllm.v1.sample.logits_processor.LogitsProcessor, and vLLM's loader finds it by its "
            "fully-qualified name; an engine and a server start with it."
        ),
        sources=(
            sentence(
                document(
                    "must subclass ... LogitsProcessor and define (at minimum) the following "
                    "methods"
                )
            ),
            vllm(
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
        sources=(
            sentence(
                document(
                    "__init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: "
                    "bool)"
                )
            ),
            vllm(
                "v1/sample/logits_processor/__init__.py:build_logitsprocs",
                "ctor(vllm_config, device, is_pin_memory)",
            ),
        ),
        hint="Where it raises an exception of its own, do what that says; else compare the "
        "signature of __init__ with the documented one, and keep state on self. Pin memory only "
        "where is_pin_memory is True.",
    ),
    Rule(
        id="LB-13",
        title="is_argmax_invariant returns the same bool for ever",
        statement="The claim is a bool, and does not change while the engine runs.",
        sources=(
            sentence(document("is_argmax_invariant() is evaluated once at startup")),
            vllm(
                "v1/sample/logits_processor/state.py:LogitsProcessors.__init__",
                "splits the processors by it once",
            ),
        ),
        hint="Decide it in __init__, from the configuration; not from requests.",
    ),
    Rule(
        id="LB-15",
        title="Bad arguments are refused at admission, with ValueError",
        statement=(
            "validate_params raises ValueError or VLLMValidationError for the profile's `invalid` "
            "requests, and for none of the others: HTTP 400 for that request and nothing else."
        ),
        sources=(
            sentence(
                vllm(
                    "v1/sample/logits_processor/interface.py:LogitsProcessor.validate_params",
                    "raise VLLMValidationError / ValueError for invalid params",
                    since="0.11.2",
                )
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
        id="LB-24",
        title="Every call returns, and the process lives",
        statement=(
            "No call of the engine hangs, exits or crashes the process: there is one engine loop "
            "for all requests."
        ),
        sources=(
            document("vLLM will invoke update_state() and apply() ... in every engine step"),
            STOPS,
        ),
        hint="Look for loops without a bound, locks, network calls, sys.exit and native code.",
        evidence=ALL,
    ),
    Rule(
        id="LB-25",
        title="A request without prompt token ids is served",
        statement=(
            "The prompt of an added request may be None, where it was given as embeddings: "
            "the plugin serves it, or leaves it alone, does not raise, "
            "and gives the others of its batch what they get without it."
        ),
        sources=(
            sentence(
                vllm(
                    "v1/sample/logits_processor/interface.py:AddedRequest",
                    "prompt_tok_ids is list[int] | None",
                    since="0.11.2",
                )
            ),
            vllm(
                "v1/worker/gpu_input_batch.py:InputBatch._register_add_request",
                "hands on request.prompt_token_ids, which is None for a prompt of embeddings",
            ),
            RAISES,
        ),
        hint="Treat None as an empty prompt. Any client may send embeddings where the engine runs "
        "with --enable-prompt-embeds, and what raises then ends the engine. vLLM's own adapter "
        "raises for request-level callables of three arguments: override update_state, and hand "
        "it an empty prompt.",
    ),
    rules.needs_no_instance(
        "LB-31",
        "update_state",
        vllm(
            "v1/sample/logits_processor/__init__.py:validate_logits_processors_parameters",
            "called on each class, in the front end's threads",
            since="0.11.2",
        ),
        vllm(
            "v1/sample/logits_processor/interface.py:LogitsProcessor.validate_params",
            "a classmethod",
            since="0.11.2",
        ),
    ),
    rules.answers_nothing(
        "LB-48",
        vllm(
            "v1/sample/logits_processor/interface.py:LogitsProcessor.validate_params",
            "documents no result",
            since="0.11.2",
        ),
        vllm(
            "v1/sample/logits_processor/__init__.py:validate_logits_processors_parameters",
            "calls it and drops what it returns",
            since="0.11.2",
        ),
    ),
    Rule(
        id="LB-32",
        title="The same tokens, however it is loaded and asked",
        statement=(
            "A greedy request gets the same tokens whether the plugin is loaded as a class, by "
            "name, as an entry point or on the command line, and whether it is asked through "
            "LLM.generate, AsyncLLM.generate, the OpenAI SDK or plain REST."
        ),
        sources=(
            document("different ways of making your logits processor visible to vLLM"),
            document("The examples below show how a user would pass a custom argument"),
        ),
        hint="Look for state that is shared between the front end and the engine in one process, "
        "for settings taken from the environment, and for values that change on their way through "
        "JSON.",
        evidence=(OFFLINE, SERVER),
    ),
    rules.serves_combinations(
        "LB-39",
        "A request that enables the plugin and asks for more (several answers, log "
        "probabilities, penalties, stop and bad words, allowed tokens, a bias, a grammar, any "
        "temperature and length) is refused by validate_params or served: nothing raises or "
        "hangs, and its row and those of others are the ones they get alone.",
        vllm(
            "sampling_params.py:SamplingParams",
            "the fields that a client may set beside extra_args",
        ),
        vllm(
            "v1/sample/logits_processor/interface.py:AddedRequest",
            "every processor is handed the whole SamplingParams of a request",
            since="0.11.2",
        ),
        RAISES,
    ),
    rules.leaves_a_token(
        "LB-41",
        vllm(
            "v1/sample/sampler.py:Sampler.apply_logits_processors",
            "allowed tokens and bad words are masked before custom processors are called",
        ),
        vllm(
            "v1/sample/logits_processor/builtin.py:MinTokensLogitsProcessor",
            "restores the stop tokens where a grammar leaves nothing else",
        ),
    ),
    rules.same_in_configurations(
        "LB-47",
        SINCE,
        vllm(
            "v1/sample/logits_processor/__init__.py:build_logitsprocs",
            "each worker makes an instance from the configuration of its engine",
        ),
    ),
    rules.leaves_others_alone(
        "LB-40", SINCE, buffers="v1/worker/gpu_model_runner.py:GPUModelRunner.__init__"
    ),
)
