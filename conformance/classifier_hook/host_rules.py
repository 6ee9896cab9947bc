# SPDX-License-Identifier: Apache-2.0
"""What a runtime owes classifier hooks, and those who wait for answers, as data.

The other side of the contract: these rules are about what calls the hooks, which is the runtime of
``reference_plugins`` or a vLLM that has the interface itself.  They are judged in
:mod:`conformance.classifier_hook.host_check`.
Identifiers are stable: a rule that goes away leaves its number unused.
"""

from __future__ import annotations

from conformance.classifier_hook.catalogue import sources
from conformance.classifier_hook.catalogue.sources import LOOP, runtime
from conformance.hosts import Host, rule
from conformance.rules import Source, sentence

REGISTRATION = "Registration of hooks"
TIME = "Time of hooks"
VERDICTS = "What hooks decide"
CONTEXTS = "What hooks are told"
OUTPUTS = "What goes out"
REQUESTS = "Requests that go on, and end"
COST = "Cost"


def rfc(says: str) -> Source:
    """Return a sentence of the RFC, which is why the rule is a MUST."""
    return sentence(sources.rfc(says))


ASYNC, BLOCKS, BOUNDED = map(sentence, (sources.ASYNC, sources.BLOCKS, sources.BOUNDED))
_ERRORS = runtime("scores.py:failure", "what stands for the scores of a hook that gave none")
_FINAL = rfc("blocking hooks are invoked at end-of-stream and can replace the final chunk only")
_METADATA = rfc("every classifier's output appears under ... RequestOutput.metadata")
_ANNOTATES = rfc("True = decision; False = annotation only")
_CONTEXT = rfc("The engine builds a ScoringContext")


RULES = (
    rule(
        "CR-01",
        REGISTRATION,
        "A hook that keeps the contract is taken",
        "An engine has `register_external_classifier_hook`, and a hook with the documented "
        "attributes, with and without `on_error`, is called for the requests that follow.",
        "Look at what registration asks of a hook beyond the contract.",
        rfc("engine.register_external_classifier_hook(hook)"),
    ),
    rule(
        "CR-02",
        REGISTRATION,
        "Anything else is refused with a sentence",
        "A missing or wrong attribute, a score that takes no single argument or yields, and a name "
        "that is taken raise an error that names what is wrong; no such hook is called.",
        "Check before anything is kept; bool is a subclass of int.",
        rfc("name: str ... blocking: bool ... timeout_ms: int ... async def score(self, ctx"),
        runtime("registry.py:checked", "an attribute is missing or not what the contract asks for"),
    ),
    rule(
        "CR-03",
        REGISTRATION,
        "Attributes are read once",
        "What a hook changes of itself after its registration changes nothing.",
        "Keep name, blocking, timeout_ms and on_error as they were.",
        runtime("contract.py:Entry", "its attributes as they were at registration"),
    ),
    rule(
        "CR-04",
        REGISTRATION,
        "Requests keep the hooks that they began with",
        "A hook that is registered while a request is served is called for later requests only.",
        "Keep the hooks of a request when it starts.",
        runtime("registry.py:Registry.register", "requests under way keep the hooks"),
    ),
    rule(
        "CR-05",
        TIME,
        "The hooks of a completion run at once",
        "Several hooks take the time of the slowest, not the sum.",
        "Start all of them before any is awaited.",
        BOUNDED,
    ),
    rule(
        "CR-06",
        TIME,
        "Each hook is ended at its own timeout",
        "A hook is cancelled when its own `timeout_ms` has passed since its first step; others "
        "keep their time, and nobody is ended earlier.",
        "Look for one timeout over all hooks, and for clocks that start too early.",
        BOUNDED,
    ),
    rule(
        "CR-07",
        TIME,
        "Nobody holds an answer beyond its timeout and the margin",
        "A hook that ignores its cancellation holds the answer for 50 ms more than its timeout; "
        "what it says after its timeout counts for nothing.",
        "`asyncio.wait_for` waits until a cancelled task has ended, for as long as that takes.",
        BOUNDED,
        runtime("contract.py:MARGIN", "seconds beyond its timeout"),
    ),
    rule(
        "CR-08",
        VERDICTS,
        "A failing annotation lets the answer through",
        "A hook with `blocking` False that times out, raises or answers with something else than "
        "a dict of JSON values leaves the answer as it is and "
        '`{"error": {"type": "timeout" | "exception" | "invalid", "message": ...}}` under its '
        "name; SystemExit and CancelledError of its own are exceptions like any other.",
        "Catch BaseException around the call, and tell cancellation by others from its own.",
        _ANNOTATES,
        _ERRORS,
    ),
    rule(
        "CR-09",
        VERDICTS,
        "A failing blocker closes, unless it says otherwise",
        "A blocking hook that fails replaces the answer by the default refusal, and with "
        '`on_error = "allow"` lets it through; its error stands under its name either way.',
        "Look at how each kind of failure is turned into a decision.",
        runtime("contract.py:ExternalClassifierHook", "timeouts and failures close"),
    ),
    rule(
        "CR-10",
        VERDICTS,
        "A truthy 'block' of a blocking hook replaces the answer",
        "The answer becomes `replacement` where that is a text, else the default refusal; a hook "
        "that annotates replaces nothing, whatever it says.",
        "Look at truthy values that are not True, and at replacements that are no texts.",
        BLOCKS,
    ),
    rule(
        "CR-11",
        VERDICTS,
        "The first registered of several blockers decides",
        "Whichever ends first, the replacement is that of the blocker that was registered first.",
        "Go through the answers in the order of registration.",
        runtime("scores.py:decided", "in the order of registration"),
    ),
    rule(
        "CR-12",
        VERDICTS,
        "Scores arrive under the name, with the output that ends the completion",
        "`RequestOutput.metadata['external_scores'][name]` of that output has what the hook "
        "returned; outputs before it have none.",
        "Look at outputs that are copied, and at where metadata are set.",
        _METADATA,
    ),
    rule(
        "CR-13",
        VERDICTS,
        "Each of several completions is scored",
        "With `n` of 2 or more every completion is scored by itself, its scores are found by its "
        "index, and only what is blocked is replaced.",
        "Look at index, and at what is shared by the completions of a request.",
        rfc("every completion is scored"),
    ),
    rule(
        "CR-14",
        VERDICTS,
        "Scores do not change any more",
        "What a hook does later to what it returned reaches nobody.",
        "Copy what a hook returns.",
        runtime("scores.py:copied", "as plain JSON values of its own"),
    ),
    rule(
        "CR-15",
        CONTEXTS,
        "Contexts are complete",
        "A context has the request's id, the prompt and its tokens, the whole text and all tokens "
        "of the completion, also where outputs merged for a slow reader, its finish and stop "
        "reasons, its index, log probabilities where they were asked for, `vllm_xargs` and what "
        "is known of the request.",
        "Look at deltas that merge, at prompts given as tokens, and at requests without text.",
        _CONTEXT,
    ),
    rule(
        "CR-16",
        CONTEXTS,
        "A context is plain data, and nobody else's",
        "What the RFC calls a dict or a list is one, all the way down, and a hook that changes its "
        "context changes neither that of another hook nor the answer.",
        "Hand each hook a copy, and of what is in it as well; no proxies and no tuples.",
        _CONTEXT,
    ),
    rule(
        "CR-17",
        OUTPUTS,
        "What is not blocked goes out as it is",
        "Texts, tokens, log probabilities, reasons, order and times of the outputs of a request "
        "that nobody blocks are those of an engine without hooks, but for the scores.",
        "Pass outputs on; never make them anew.",
        _ANNOTATES,
    ),
    rule(
        "CR-18",
        OUTPUTS,
        "A replaced completion keeps nothing of the original",
        "Token ids, log probabilities, stop reason and all else that says something of what was "
        "generated are gone with the text, and so is what leads to the original's cache.",
        "Name the fields that stay, and let all others go.",
        BLOCKS,
        runtime("replacement.py:replaced", "nothing of what was generated"),
    ),
    rule(
        "CR-19",
        OUTPUTS,
        "A replaced completion reports content_filter",
        "`finish_reason` is `content_filter`, and the request finishes.",
        "Set it with the text.",
        runtime("contract.py:REPLACED", "in OpenAI's words"),
    ),
    rule(
        "CR-20",
        OUTPUTS,
        "In a stream only the last chunk is replaced",
        "Hooks are asked once, at the end, about the whole text; what was generated before goes "
        "out when it is there, and the last chunk is the replacement alone.",
        "Look at when hooks are asked, and at deltas and cumulative texts.",
        _FINAL,
    ),
    rule(
        "CR-21",
        OUTPUTS,
        "A held stream is all or nothing",
        "Where the operator holds streams, nothing goes out while a blocking hook decides; then "
        "the chunks go out as they were, or the replacement alone. Annotations hold nothing.",
        "Keep outputs, and let them go in their order.",
        runtime("configuration.py:Policy.streaming", "nothing goes out before the decision"),
    ),
    rule(
        "CR-22",
        REQUESTS,
        "Aborted requests are not scored",
        "A completion that was aborted is not scored; an abort cancels the hooks at work, and "
        "where a blocking hook closes no text goes out that it has not decided about.",
        "Look at both: an abort before the end, and one while hooks are at work.",
        rfc("All registered hooks are invoked concurrently"),
        runtime("stream.py:Request.verdict", "None if it is not to be scored"),
    ),
    rule(
        "CR-23",
        REQUESTS,
        "Who goes away takes its hooks along",
        "When a reader is cancelled, or stops reading, its hooks are cancelled, its request is "
        "aborted in the engine, and no task is left.",
        "Cancel in finally, and close the generator of the engine.",
        LOOP,
        runtime("stream.py:scored", "cancels the hooks at work and closes outputs"),
    ),
    rule(
        "CR-24",
        REQUESTS,
        "Requests do not hold each other up",
        "While hooks decide about one completion, other requests, and other completions of the "
        "same stream, go on.",
        "Look for locks, and for hooks that are awaited where outputs are read.",
        ASYNC,
    ),
    rule(
        "CR-25",
        REQUESTS,
        "Requests do not mix",
        "Of many requests at once, whose hooks take different times, each gets its own scores.",
        "Look for attributes that two requests share.",
        _METADATA,
    ),
    rule(
        "CR-26",
        COST,
        "No hook, no cost",
        "An engine without hooks runs vLLM's own functions and no others, and so does an engine "
        "beside one that has hooks.",
        "Wrap an engine's functions when its first hook is registered.",
        rfc("a small, public, opt-in hook surface"),
        runtime("mount.py", "an engine without hooks runs vLLM's functions and no others"),
    ),
    rule(
        "CR-27",
        COST,
        "Nothing is remembered",
        "When a completion has been scored nobody holds its context; an engine is freed with its "
        "last reference.",
        "Look for circles, and for dictionaries by request id.",
        LOOP,
        runtime("mount.py:_attach", "an engine shuts down when its last reference goes"),
    ),
    rule(
        "CR-28",
        COST,
        "Hooks are counted",
        "vLLM's metrics have, by the name of the hook, its calls, blocks, timeouts and errors, "
        "and a histogram of how long calls take.",
        "Count each call once, when it ends.",
        runtime("metrics.py:Metrics", "counts what hooks do"),
    ),
    rule(
        "CR-29",
        COST,
        "The same hook serves vLLM's endpoint plugins",
        "A hook in an `EndpointHook` is a vLLM endpoint plugin, and gets through vLLM's own "
        "`post_generation` the scores, the replacement and the refusals that this runtime gives.",
        "Compare what vLLM's function makes of the outcome.",
        Source(
            "vLLM pull request 53512: Optional post-generation hook on EndpointPlugin",
            "chat and completion serving invoke the hook once, before serialization",
        ),
    ),
)

HOST = Host("hook/rfc", RULES, "conformance.classifier_hook.host_check:judge")
