# SPDX-License-Identifier: Apache-2.0
"""Rules that both generations of logits processors have, and where these come from.

A generation says under which number it has them, by which code of vLLM, and since which release.
"""

from __future__ import annotations

from conformance.rules import Evidence, Rule, Source, changes, ends, sentence
from conformance.watching import sharing

_ALL = tuple(Evidence)
_ENGINE = (Evidence.SIMULATOR, Evidence.OFFLINE)


def raises(since: str) -> Source:
    """Return the place by which an exception harms all requests."""
    return ends(
        Source(
            "v1/engine/core.py:EngineCoreProc.run_engine_core",
            "an exception in the model runner ends the engine and every request in it",
            since,
        )
    )


def stops(since: str) -> Source:
    """Return the place by which a call that does not return harms all requests."""
    return ends(
        Source(
            "v1/engine/core.py:EngineCoreProc.run_busy_loop",
            "one loop computes all requests: a call that does not return stops them, an exit ends "
            "them",
            since,
        )
    )


def ranks(since: str) -> Source:
    """Return the place by which ranks that compute different tokens harm other requests."""
    return changes(
        Source(
            "v1/core/block_pool.py:BlockPool.cache_full_blocks",
            "keys and values are shared by the tokens that one rank reports: what another rank "
            "computed from other tokens goes to every request that begins alike",
            since,
        )
    )


def ends_no_engine(rule_id: str, *sources: Source) -> Rule:
    """Return the rule about values that clients send under the keys of a plugin."""
    return Rule(
        id=rule_id,
        title="No request that a client can send ends the engine",
        statement=(
            "A request with any value under the keys that the plugin reads, or with arguments of "
            "another plugin alone, is refused by validate_params, or it is served: alone and "
            "among others nothing raises, nothing hangs, memory stays bounded, and other requests "
            "do not notice."
        ),
        sources=sources,
        hint="Check in validate_params the type, the sign, the upper bound and the members of "
        "every value; what depends on the model, such as the size of the vocabulary, check "
        "again where it is used, and leave such a row as it came.",
        evidence=_ALL,
        resembles=("vllm-project/vllm#27560", "vllm-project/vllm#16529"),
    )


def takes_pauses(rule_id: str, since: str) -> Rule:
    """Return the rule about the time between two calls."""
    return Rule(
        id=rule_id,
        title="Time may pass between two calls",
        statement=(
            "No call raises where 20 minutes pass between two steps of a request, and a day "
            "between two requests: what a plugin does by the clock, such as to tidy up or to log, "
            "works whenever its time comes, and requests that are in the batch are not tidied up."
        ),
        sources=(
            Source(
                "v1/engine/core.py:EngineCoreProc._process_input_queue",
                "an engine without work waits for a request for as long as none comes; "
                "AsyncLLM.pause_generation and sleep stop requests for as long as one likes",
                since,
            ),
            raises(since),
        ),
        hint="Drop the state of a request when it is removed, or its row is taken over, and never "
        "by its age.",
    )


def refuses_with_400(rule_id: str, since: str) -> Rule:
    """Return the rule about the status of requests that are refused."""
    return Rule(
        id=rule_id,
        title="A request that is refused gets status 400",
        statement=(
            "Whatever the value, validate_params refuses a request with an exception that vLLM "
            "answers with status 400, and so names the client's mistake."
        ),
        sources=(
            Source(
                "v1/engine/async_llm.py:AsyncLLM.generate",
                "a ValueError of validate_params is a VLLMValidationError, and 400; any other "
                "exception becomes an EngineGenerateError, and 500, which clients try again",
                since,
            ),
        ),
        hint="Check with isinstance before anything is looked up, compared or counted, and raise "
        "ValueError.",
        evidence=(Evidence.SIMULATOR, Evidence.SERVER),
    )


def needs_no_instance(rule_id: str, reads: str, *sources: Source) -> Rule:
    """Return the rule about where ``validate_params`` runs; ``reads`` reads arguments later."""
    return Rule(
        id=rule_id,
        title="validate_params needs no instance and leaves its argument alone",
        statement=(
            "The front end calls validate_params(sampling_params) on the class, in a process in "
            "which no instance is ever made: it is a classmethod or staticmethod, keeps nothing "
            "that the engine would need, and changes nothing."
        ),
        sources=sources,
        hint=f"Decorate it with @classmethod; parse the arguments again in {reads} instead of "
        "remembering what validate_params saw: the engine is another process.",
        evidence=_ENGINE,
    )


def answers_nothing(rule_id: str, *sources: Source) -> Rule:
    """Return the rule about what ``validate_params`` returns."""
    return Rule(
        id=rule_id,
        title="validate_params returns nothing",
        statement=(
            "validate_params returns None for each request that it admits: vLLM does not look at "
            "what it returns."
        ),
        sources=sources,
        hint="Leave out the return: False or a message refuses no request, raise ValueError for "
        "that; and parameters that were mended and returned reach no engine.",
    )


def serves_combinations(rule_id: str, statement: str, *sources: Source) -> Rule:
    """Return the rule about other fields of a request, and other requests."""
    return Rule(
        id=rule_id,
        title="Whatever else a client asks for, other requests get what they get without it",
        statement=statement,
        sources=sources,
        hint="Look for arithmetic with max_tokens, temperature or logprobs (1, 0 and -1 are values "
        "of theirs), for a first item of a list that may be empty, and for state that is kept by "
        "what several requests share, such as a seed. What the plugin cannot serve, "
        "validate_params refuses.",
        evidence=_ENGINE,
    )


def leaves_a_token(rule_id: str, *sources: Source) -> Rule:
    """Return the rule about other fields of a request, and its own tokens."""
    return Rule(
        id=rule_id,
        title="Whatever else a client asks for, a token is left for its own request",
        statement=(
            "Where allowed tokens, bad words, min_tokens, a bias or a grammar leave tokens, the "
            "plugin keeps at least one of them above -inf, and no logit is NaN or +inf."
        ),
        sources=sources,
        hint="Where all that the plugin would keep is -inf, leave the row as it is, or refuse the "
        "combination in validate_params. Only a SHOULD: no other request notices.",
    )


def leaves_others_alone(rule_id: str, since: str, *, buffers: str) -> Rule:
    """Return the rule about what all of a process shares; ``buffers`` makes them in vLLM."""
    return sharing.leaves_others_alone(
        rule_id,
        changes(
            Source(
                "config/model.py:ModelConfig",
                "We must set the global seed because otherwise, different tensor parallel workers "
                "would sample different tokens; the front end's process, which loads the class as "
                "well, is the caller's, and is not seeded again",
                since,
            )
        ),
        Source(
            "v1/engine/core.py:EngineCoreProc.run_engine_core",
            "the handlers of SIGTERM and SIGINT that end the engine are there before it makes "
            "processors",
            since,
        ),
        Source(
            "v1/utils.py:shutdown",
            "a process that does not end by itself is killed, with nothing put in order",
            since,
        ),
        ends(
            Source(
                "v1/sample/ops/topk_topp_sampler.py:apply_top_k_top_p_pytorch",
                "torch.cumsum on a GPU, which raises where deterministic algorithms are asked for",
                since,
            )
        ),
        changes(
            Source(
                "model_executor/models/minicpmv4_7.py:_assign_canvas_span",
                "torch.linspace without a dtype: positions in pictures depend on the default",
                since,
            )
        ),
        ends(
            Source(
                buffers,
                "buffers are made after processors; with the default device set to meta, the "
                "engine does not get through its first request",
                since,
            )
        ),
        title="Loading and serving leave to others what all requests share",
        where=" Serving requests seeds no such generator either, and leaves the default dtype.",
    )


def means_what_is_expected(rule_id: str) -> Rule:
    """Return the rule about the author's own function."""
    return Rule(
        id=rule_id,
        title="Rows are what the author says they are",
        statement=(
            "Where a profile has `expected`, each row is what that function returns for the "
            "request's parameters, prompt, outputs and logits, within the profile's `tolerance`."
        ),
        sources=(sentence(Source("the plugin's profile", "expected: what the plugin means")),),
        hint="One of the two is wrong: the plugin, or the function. Compare the tokens that the "
        "failure shows with what the request asked for.",
        evidence=_ENGINE,
    )


def keeps_parameters(rule_id: str, source: Source, evidence: tuple[Evidence, ...]) -> Rule:
    """Return the rule about ``SamplingParams`` that are handed over."""
    return Rule(
        id=rule_id,
        title="The parameters of a request are left as they are",
        statement="The plugin does not write to the SamplingParams of a request.",
        sources=(source,),
        hint="Use .get instead of .pop on extra_args. Only a SHOULD: no other request notices.",
        evidence=evidence,
    )


def same_in_configurations(rule_id: str, since: str, *sources: Source) -> Rule:
    """Return the rule about the configurations of engines that a run names."""
    return Rule(
        id=rule_id,
        title="The same tokens under every configuration of the engine",
        statement=(
            "Under each configuration that is asked for (several ranks, another process, chunked "
            "prompts, a prefix cache, preemption, ...) every request gets the tokens that the "
            "plain engine gives it, as far as vLLM itself does without the plugin; a "
            "configuration that the profile declares unsupported is refused when the engine "
            "starts."
        ),
        sources=(ranks(since), raises(since), *sources),
        hint="Look for what is kept in the front end's process, for what depends on the rank or "
        "on the number of calls, and for prompts taken to be there whole; where a configuration "
        "cannot be supported, raise in the constructor.",
        evidence=(Evidence.OFFLINE,),
    )


def grows_with_batch(rule_id: str, statement: str, *sources: Source) -> Rule:
    """Return the rule about the instructions of a step."""
    return Rule(
        id=rule_id,
        title="A step grows no faster than its batch, and not with the vocabulary",
        statement=statement,
        sources=sources,
        hint="Work on all tokens, or on pairs of requests, belongs into a tensor operation.",
    )


def needs_little_memory(rule_id: str, statement: str, source: Source) -> Rule:
    """Return the rule about the memory of a step."""
    return Rule(
        id=rule_id,
        title="A step needs little memory beside its logits",
        statement=statement,
        sources=(source,),
        hint="Nothing reserves memory for a plugin: what it needs comes out of the margin that "
        "gpu_memory_utilization leaves. Count tokens with scatter_add_ or a sparse index, never "
        "with a row of the vocabulary for each output.",
    )
