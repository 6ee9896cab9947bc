# SPDX-License-Identifier: Apache-2.0
"""The rules that parsers of both kinds share, and where they come from."""

from conformance.parser.roles import ROLES, TOOL
from conformance.rules import SERVED, Rule, Source, changes, ends, sentence
from conformance.watching import sharing

_SERVING = "vllm/entrypoints/openai/chat_completion/serving.py:OpenAIServingChat"
_LOOP = f"{_SERVING}.chat_completion_stream_generator"

MADE = Source(f"{_SERVING}._make_parser", "a parser is made for each request, and each choice")


def method(role: str, name: str, says: str) -> Source:
    """Return what is said of a method of the class that parsers derive from."""
    names = ROLES[role]
    return Source(f"{names.module.replace('.', '/')}.py:{names.base}.{name}", says)


def binding(role: str, name: str, says: str) -> Source:
    """Return what is said of such a method in words that make a MUST of a rule."""
    return sentence(method(role, name, says))


def parse_delta(says: str) -> Source:
    """Return what vLLM's parser does, which calls those of both kinds."""
    return Source("vllm/parser/abstract_parser.py:DelegatingParser.parse_delta", says)


def survives(role: str) -> Rule:
    """Return the rule that calls return."""
    return Rule(
        id=ROLES[role].rule(2),
        title="Every call returns",
        statement=(
            "No call hangs, exits, or ends the process, whatever the model says, and none stops "
            "everybody for seconds, where the answer is as long as they come (32,000 tokens), also "
            "in white space, or repeats a part without its end (8,000 tokens)."
        ),
        evidence=SERVED,
        section="Loading",
        sources=(
            ends(Source(_LOOP, "parse_delta is called in the event loop, for every request")),
        ),
        hint="Look for loops that wait for a marker, and for regular expressions that backtrack.",
    )


def leaves_others_alone(role: str) -> Rule:
    """Return the rule about what loading leaves to others."""
    rule = ROLES[role].rule(ROLES[role].shares)
    return sharing.leaves_others_alone(
        rule, *sharing.FRONT_END, MADE, where=sharing.IN_FRONT_END, heading="Loading"
    )


def streaming(role: str, parts: str) -> tuple[Rule, Rule]:
    """Return the rules that an answer gives the same parts token by token, and cut anywhere."""
    whole, streamed = ROLES[role].whole, ROLES[role].streamed
    return Rule(
        id=ROLES[role].rule(4),
        title="Streamed token by token, an answer says the same",
        statement=(
            f"The deltas of {streamed}, one for each token, add up to the {parts} that {whole} "
            "returns of the whole answer."
        ),
        evidence=SERVED,
        section="Streaming",
        sources=(binding(role, streamed, "extracting ... from an incomplete response"),),
        hint="Print the deltas of the answer in the message, one for each token. Text that may be "
        "the beginning of a marker is held back until it is known what it is.",
        resembles=("vllm-project/vllm#47901", "vllm-project/vllm#48294"),
    ), Rule(
        id=ROLES[role].rule(5),
        title="Where an answer is cut makes no difference",
        statement=(
            "However the tokens of an answer are parted into deltas, one for all of it included, "
            f"they add up to the same {parts}."
        ),
        evidence=SERVED,
        section="Streaming",
        sources=(
            binding(role, streamed, "delta_token_ids: Sequence[int], as many as there are"),
            Source(
                "vllm serve --stream-interval",
                "the number of tokens in a delta; speculative decoding brings several as well",
            ),
        ),
        hint="A delta may begin and end anywhere, and hold all there is: loop until all is said.",
        resembles=(
            "vllm-project/vllm#31501",
            "vllm-project/vllm#48020",
            "vllm-project/vllm#48347",
            "vllm-project/vllm#55082",
            "vllm-project/vllm#55195",
        ),
    )


def stops(role: str, parts: str) -> Rule:
    """Return the rule that a stop string which is not in an answer changes nothing of it."""
    how = (
        ""
        if role == TOOL
        else "Where an instance reads text, is_reasoning_end_streaming is true when the end's text "
        "has come. "
    )
    return Rule(
        id=ROLES[role].rule(19),
        title="A stop string that never comes changes nothing",
        statement=(
            f"A streamed answer to a request with stop strings, none of which is in it, says the "
            f"same {parts} as to a request without: the text of a delta comes later than its "
            "tokens then."
        ),
        evidence=SERVED,
        section="Streaming",
        sources=(
            Source(
                "vllm/v1/engine/detokenizer.py:BaseIncrementalDetokenizer",
                "stop_buffer_length: Number of chars to hold back when stop strings are to be "
                "excluded from streamed output; token ids are not held back",
            ),
        ),
        hint="A marker is where its text is, which may come in several deltas, later than its "
        f"token. {how}Only a SHOULD: vLLM could hold back the tokens as well.",
        resembles=("vllm-project/vllm#36830", "vllm-project/vllm#41067", "vllm-project/vllm#51641"),
    )


def others(role: str) -> tuple[Rule, ...]:
    """Return the rules about other requests, and about answers that make no sense."""
    error = Source(_LOOP, "an exception of the parser ends the stream with an error")
    return (
        Rule(
            id=ROLES[role].rule(9),
            title="A request leaves nothing to another one",
            statement=(
                "An answer gives the same after others, after one that was broken off, and beside "
                "one that is streamed at the same time, also as a choice of the same request (n), "
                + ("after one whose tool of the same name has another schema, " * (role == TOOL))
                + "and the vocabulary of the tokenizer, which all parsers of a server share, stays "
                "as it is."
            ),
            evidence=SERVED,
            section="Requests",
            sources=(changes(MADE),),
            hint="Keep state on self, made in __init__: not on the class, nor in the module; and "
            "change a copy of the vocabulary: dict(tokenizer.get_vocab()).",
        ),
        Rule(
            id=ROLES[role].rule(10),
            title="An answer may end anywhere",
            statement=(
                "An answer that ends after any token, as by max_tokens, never raises"
                + (", and keeps the calls that were complete." if role == TOOL else ".")
            ),
            evidence=SERVED,
            section="Faults",
            sources=(error,),
            hint="Look for an index, a split or a decoder that takes the rest for granted.",
        ),
        Rule(
            id=ROLES[role].rule(11),
            title="Malformed answers do not raise",
            statement="Whatever the model says, the parser returns what it can, or all as content.",
            evidence=SERVED,
            section="Faults",
            sources=(error,),
            hint="A model begins twice, never ends, and writes arguments that are no object. At a "
            "number of 5,000 digits Python raises a plain ValueError, at lists 2,000 deep a "
            "RecursionError: catch them beside a JSONDecodeError.",
        ),
    )


def together(role: str) -> Rule:
    """Return the rule that both parsers of a model work together."""
    return Rule(
        id=ROLES[role].rule(ROLES[role].together),
        title="Behind reasoning, calls are those that they are alone",
        statement=(
            "With the partner that the profile names, an answer gives its reasoning, and then the "
            "content and calls that its rest gives alone, whole, streamed and cut anywhere."
        ),
        evidence=SERVED,
        section="Together",
        sources=(
            sentence(
                Source(
                    "vllm/tool_parsers/AGENTS.md",
                    "ParserManager.get_parser composes the tool parser chosen by name with the "
                    "reasoning parser into the unified Parser the serving layer uses",
                )
            ),
            parse_delta(
                "orchestrating reasoning then tool call extraction; the first delta of the rest "
                "is what was content in the delta with the end of reasoning, or empty"
            ),
        ),
        hint="The first delta may be empty, and previous_text begins anew.",
    )


def cost(role: str) -> Rule:
    """Return the rule that a step does not cost more behind a longer answer."""
    return Rule(
        id=ROLES[role].rule(ROLES[role].cost),
        title="What a step costs does not grow with the answer",
        statement=(
            "One more token has about as many lines of Python executed behind an answer as behind "
            "one of a quarter of its length."
        ),
        section="Cost",
        sources=(Source(_LOOP, "parse_delta is called in the event loop, for every token"),),
        hint="Read the delta alone, and keep what the next one needs; see the reference parsers.",
        resembles=("vllm-project/vllm#44873",),
    )


def forgets(role: str) -> Rule:
    """Return the rule that nothing is left of answers that are over."""
    return Rule(
        id=ROLES[role].rule(ROLES[role].memory),
        title="Finished answers leave nothing behind",
        statement=(
            "A parser lives as long as its request: after five thousand answers, each unlike the "
            "others, its class, its module and their caches do not grow any more."
        ),
        section="Cost",
        sources=(
            MADE,
            ends(Source(_LOOP, "one process serves all requests: what grows with each ends it")),
        ),
        hint="Look for caches without a limit, functools.cache among them, and for lists and "
        "dictionaries of the module; a cache may have 5,000 entries.",
    )
