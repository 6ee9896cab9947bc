# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about loading, construction, warm-up and admission."""

from __future__ import annotations

from conformance.logits import rules
from conformance.logits_slot.catalogue.sources import (
    ALL,
    LIVE,
    RAISES,
    SINCE,
    interface,
    vllm,
)
from conformance.rules import Rule, ends, section, sentence

RULES = section(
    "Loading, warm-up and admission",
    Rule(
        id="LS-01",
        title="The class loads in every documented way",
        statement=(
            "The target imports, is a concrete subclass of "
            "vllm.v1.worker.gpu.sample.logits_processor.LogitsProcessor, and vLLM's loader finds "
            "it by its fully-qualified name; an engine and a server start with it."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:_load_v2_logitsprocs_by_fqcns",
                "a name is <module>:<type>, the object a subclass of LogitsProcessor",
            ),
            sentence(interface("LogitsProcessor", "apply is abstract")),
        ),
        hint="Check the base class: a class of the V1 interface is refused by Model Runner V2; a "
        "class may be a subclass of both.",
        evidence=ALL,
    ),
    Rule(
        id="LS-02",
        title="The constructor takes (vllm_config, req_states), any number of times",
        statement=(
            "Instances are made with exactly two positional arguments, more than once in a "
            "process, and share no request state."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.__init__",
                    "Capture what stays constant for the processor's lifetime",
                )
            ),
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:build_custom_logits_processors",
                "ctor(vllm_config, lp_req_state)",
            ),
        ),
        hint="Where it raises an exception of its own, do what that says; else compare the "
        "signature of __init__ with the documented one, and keep state on self.",
    ),
    Rule(
        id="LS-13",
        title="Warm-up requests are served and leave nothing behind",
        statement=(
            "Before the first request the engine adds fake ones, with extra_args None, to real "
            "slots, and processes logits for slots that no request is in. Neither raises, and "
            "rows of later requests do not depend on it."
        ),
        sources=(
            ends(
                vllm(
                    "v1/worker/gpu/warmup.py:warmup_kernels",
                    "fake requests go the way of real ones; what raises there ends the engine",
                )
            ),
            vllm("sampling_params.py:SamplingParams.for_sampler_warmup", "extra_args is not set"),
        ),
        hint="Treat extra_args None like an empty dictionary, and overwrite the slot in "
        "add_request whoever was there before.",
    ),
    Rule(
        id="LS-23",
        title="Bad arguments are refused by validate_params, on the class, with ValueError",
        statement=(
            "validate_params, called on the class, accepts every valid request and refuses every "
            "invalid one with ValueError."
        ),
        sources=(
            sentence(
                interface(
                    "LogitsProcessor.validate_params",
                    "Raise ValueError for invalid per-request arguments",
                )
            ),
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:"
                "build_custom_logits_processors_params_validator",
                "ValueError becomes VLLMValidationError, which the server answers with 400",
            ),
        ),
        hint="Check types and ranges in validate_params; add_request and apply are too late: "
        "what they raise ends the engine.",
        evidence=ALL,
    ),
    rules.needs_no_instance(
        "LS-41",
        "add_request",
        interface("LogitsProcessor.validate_params", "a classmethod, run at admission"),
        vllm(
            "v1/worker/gpu/sample/logits_processor/loader.py:"
            "build_custom_logits_processors_params_validator",
            "calls it in the front end's process",
        ),
    ),
    Rule(
        id="LS-30",
        title="Every way of loading and asking gives the same tokens",
        statement=(
            "By class, fully-qualified name and entry point, offline and through the server, the "
            "same requests get the same tokens."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:_load_v2_logitsprocs",
                "Combines installed plugins with the user-specified list of types and FQCN strings",
            ),
        ),
        hint="Look for state that depends on how the module was imported.",
        evidence=LIVE,
    ),
    Rule(
        id="LS-31",
        title="A class of both interfaces gives the same rows through both",
        statement=(
            "Where a class also serves the V1 model runner, the same request with the same tokens "
            "and logits, none of them masked, gets the same rows there."
        ),
        sources=(
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:LOGITSPROCS_GROUP",
                "Same entry-points group: a class that is installed is loaded by either runner",
            ),
        ),
        hint="Share what computes a row between the two interfaces; look at how each finds the "
        "outputs so far.",
    ),
    rules.serves_combinations(
        "LS-36",
        "A request that enables the plugin and asks for more (several answers, log "
        "probabilities, penalties, stop and bad words, allowed tokens, a bias, a grammar, any "
        "temperature and length, embeddings) is refused by validate_params or served: nothing "
        "raises or hangs, and its rows and those of others are the ones they get alone.",
        vllm(
            "sampling_params.py:SamplingParams",
            "the fields that a client may set beside extra_args",
        ),
        interface("LogitsProcessor.add_request", "is handed the whole SamplingParams"),
        vllm(
            "v1/request.py:Request.__init__",
            "a prompt of embeddings has token id 0 in every place",
        ),
        RAISES,
    ),
    rules.leaves_a_token(
        "LS-38",
        vllm(
            "v1/worker/gpu/sample/sampler.py:Sampler.__init__",
            "bias, penalties and bad words stand before custom processors",
        ),
        vllm(
            "v1/worker/gpu/structured_outputs.py:StructuredOutputsWorker.apply_grammar_bitmask",
            "a grammar masks logits before the sampler",
        ),
    ),
    rules.answers_nothing(
        "LS-45",
        interface("LogitsProcessor.validate_params", "-> None"),
        vllm(
            "v1/worker/gpu/sample/logits_processor/loader.py:build_custom_logits_processors_params_validator",
            "calls it and drops what it returns",
        ),
    ),
    rules.same_in_configurations(
        "LS-44",
        SINCE,
        vllm(
            "v1/worker/gpu/sample/logits_processor/loader.py:build_custom_logits_processors",
            "each worker makes an instance from the configuration of its engine",
        ),
    ),
    rules.leaves_others_alone(
        "LS-37", SINCE, buffers="v1/worker/gpu/model_runner.py:GPUModelRunner.load_model"
    ),
)
