# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/batch`` about loading, construction and admission."""

from __future__ import annotations

from conformance.logits_batch.catalogue.sources import ALL, ENGINE, OFFLINE, SERVER, document, vllm
from conformance.rules import Level, Rule

SECTION = "Loading and admission"

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
        section=SECTION,
        sources=(
            document(
                "must subclass ... LogitsProcessor and define (at minimum) the following methods"
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
        level=Level.MUST,
        section=SECTION,
        sources=(
            document(
                "__init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool)"
            ),
            vllm(
                "v1/sample/logits_processor/__init__.py:build_logitsprocs",
                "ctor(vllm_config, device, is_pin_memory)",
            ),
        ),
        hint="Compare the signature of __init__ with the documented one; keep state on self.",
    ),
    Rule(
        id="LB-13",
        title="is_argmax_invariant returns the same bool for ever",
        statement="The claim is a bool, and does not change while the engine runs.",
        level=Level.MUST,
        section=SECTION,
        sources=(
            document("is_argmax_invariant() is evaluated once at startup"),
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
        level=Level.MUST,
        section=SECTION,
        sources=(
            vllm(
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
        id="LB-24",
        title="Every call returns, and the process lives",
        statement=(
            "No call of the engine hangs, exits or crashes the process: there is one engine loop "
            "for all requests."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(document("vLLM will invoke update_state() and apply() ... in every engine step"),),
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
        section=SECTION,
        sources=(
            vllm(
                "v1/sample/logits_processor/interface.py:AddedRequest",
                "prompt_tok_ids is list[int] | None",
                since="0.11.2",
            ),
        ),
        hint="Treat None as an empty prompt. Only a SHOULD: vLLM's own adapter for request-level "
        "callables of three arguments raises here, and prompt embeddings are off by default.",
    ),
    Rule(
        id="LB-31",
        title="validate_params needs no instance and leaves its argument alone",
        statement=(
            "The front end calls validate_params(sampling_params) on the class, in a process in "
            "which no instance is ever made: it is a classmethod or staticmethod, keeps nothing "
            "that the engine would need, and changes nothing."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(
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
        hint="Decorate it with @classmethod; parse the arguments again in update_state instead of "
        "remembering what validate_params saw: the engine is another process.",
        evidence=ENGINE,
    ),
    Rule(
        id="LB-32",
        title="The same tokens, however it is loaded and asked",
        statement=(
            "A greedy request gets the same tokens whether the plugin is loaded as a class, by "
            "name, as an entry point or on the command line, and whether it is asked through "
            "LLM.generate, AsyncLLM.generate, the OpenAI SDK or plain REST."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(
            document("different ways of making your logits processor visible to vLLM"),
            document("The examples below show how a user would pass a custom argument"),
        ),
        hint="Look for state that is shared between the front end and the engine in one process, "
        "for settings taken from the environment, and for values that change on their way through "
        "JSON.",
        evidence=(OFFLINE, SERVER),
    ),
)
