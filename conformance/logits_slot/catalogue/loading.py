# SPDX-License-Identifier: Apache-2.0
"""Rules of ``logits/slot`` about loading, construction, warm-up and admission."""

from __future__ import annotations

from conformance.logits_slot.catalogue.sources import ALL, ENGINE, LIVE, RAISES, interface, vllm
from conformance.rules import Level, Rule, changes, ends, section, sentence

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
        level=Level.MUST,
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
        level=Level.MUST,
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
        level=Level.MUST,
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
        level=Level.MUST,
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
    Rule(
        id="LS-41",
        title="validate_params needs no instance and leaves its argument alone",
        statement=(
            "The front end calls validate_params(sampling_params) on the class, in a process in "
            "which no instance is ever made: it is a classmethod or staticmethod, keeps nothing "
            "that the engine would need, and changes nothing."
        ),
        level=Level.SHOULD,
        sources=(
            interface("LogitsProcessor.validate_params", "a classmethod, run at admission"),
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:"
                "build_custom_logits_processors_params_validator",
                "calls it in the front end's process",
            ),
        ),
        hint="Decorate it with @classmethod; parse the arguments again in add_request instead of "
        "remembering what validate_params saw: the engine is another process.",
        evidence=ENGINE,
    ),
    Rule(
        id="LS-30",
        title="Every way of loading and asking gives the same tokens",
        statement=(
            "By class, fully-qualified name and entry point, offline and through the server, the "
            "same requests get the same tokens."
        ),
        level=Level.SHOULD,
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
        level=Level.SHOULD,
        sources=(
            vllm(
                "v1/worker/gpu/sample/logits_processor/loader.py:LOGITSPROCS_GROUP",
                "Same entry-points group: a class that is installed is loaded by either runner",
            ),
        ),
        hint="Share what computes a row between the two interfaces; look at how each finds the "
        "outputs so far.",
    ),
    Rule(
        id="LS-36",
        title="Whatever else a client asks for, other requests get what they get without it",
        statement=(
            "A request that enables the plugin and asks for more (several answers, log "
            "probabilities, penalties, stop and bad words, allowed tokens, a bias, a grammar, any "
            "temperature and length, embeddings) is refused by validate_params or served: nothing "
            "raises or hangs, and its rows and those of others are the ones they get alone."
        ),
        level=Level.MUST,
        sources=(
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
        hint="Look for arithmetic with max_tokens, temperature or logprobs (1, 0 and -1 are values "
        "of theirs), for a first item of a list that may be empty, and for state that is kept by "
        "what several requests share, such as a seed. What the plugin cannot serve, "
        "validate_params refuses.",
        evidence=ENGINE,
    ),
    Rule(
        id="LS-38",
        title="Whatever else a client asks for, a token is left for its own request",
        statement=(
            "Where allowed tokens, bad words, min_tokens, a bias or a grammar leave tokens, the "
            "plugin keeps at least one of them above -inf, and no logit is NaN or +inf."
        ),
        level=Level.SHOULD,
        sources=(
            vllm(
                "v1/worker/gpu/sample/sampler.py:Sampler.__init__",
                "bias, penalties and bad words stand before custom processors",
            ),
            vllm(
                "v1/worker/gpu/structured_outputs.py:StructuredOutputsWorker.apply_grammar_bitmask",
                "a grammar masks logits before the sampler",
            ),
        ),
        hint="Where all that the plugin would keep is -inf, leave the row as it is, or refuse the "
        "combination in validate_params. Only a SHOULD: no other request notices.",
    ),
    Rule(
        id="LS-37",
        title="Loading leaves to others what all requests share",
        statement=(
            "Importing the module and making instances seeds no global generator of random "
            "numbers, leaves torch's default dtype and device as they are and its deterministic "
            "algorithms off, takes SIGTERM and SIGINT from no handler, and leaves no thread and no "
            "process that keeps the engine from ending or outlives it."
        ),
        level=Level.MUST,
        sources=(
            changes(
                vllm(
                    "config/model.py:ModelConfig",
                    "We must set the global seed because otherwise, different tensor parallel "
                    "workers would sample different tokens; the front end's process, which loads "
                    "the class as well, is the caller's, and is not seeded again",
                )
            ),
            vllm(
                "v1/engine/core.py:EngineCoreProc.run_engine_core",
                "the handlers of SIGTERM and SIGINT that end the engine are there before it makes "
                "processors",
            ),
            vllm(
                "v1/utils.py:shutdown",
                "a process that does not end by itself is killed, with nothing put in order",
            ),
            ends(
                vllm(
                    "v1/sample/ops/topk_topp_sampler.py:apply_top_k_top_p_pytorch",
                    "torch.cumsum on a GPU, which raises where deterministic algorithms are asked "
                    "for",
                )
            ),
            changes(
                vllm(
                    "model_executor/models/minicpmv4_7.py:_assign_canvas_span",
                    "torch.linspace without a dtype: positions in pictures depend on the default",
                )
            ),
            ends(
                vllm(
                    "v1/worker/gpu/model_runner.py:GPUModelRunner.load_model",
                    "buffers are made after processors; with the default device set to meta, the "
                    "engine does not get through its first request",
                )
            ),
        ),
        hint="Draw from a torch.Generator, random.Random or numpy.random.default_rng of your own; "
        "pass dtype and device to what makes tensors; make threads daemons, and end children in "
        "atexit; hand signals on to the handler that was there.",
    ),
)
