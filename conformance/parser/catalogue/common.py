# SPDX-License-Identifier: Apache-2.0
"""The rules that parsers of both kinds share, and where they come from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from conformance import sharing
from conformance.rules import Evidence, Level, Rule, Source, changes, ends, sentence

if TYPE_CHECKING:
    from collections.abc import Callable

_SERVING = "vllm/entrypoints/openai/chat_completion/serving.py:OpenAIServingChat"
_LOOP = f"{_SERVING}.chat_completion_stream_generator"

#: What clients of a server see as well.
SERVED = (Evidence.SIMULATOR, Evidence.SERVER)

MADE = Source(f"{_SERVING}._make_parser", "a parser is made for each request, and each choice")


def survives(rule: str) -> Rule:
    """Return the rule that calls return."""
    return Rule(
        id=rule,
        title="Every call returns",
        statement="No call hangs, exits, or ends the process, whatever the model says.",
        level=Level.MUST,
        evidence=SERVED,
        section="Loading",
        sources=(
            ends(Source(_LOOP, "parse_delta is called in the event loop, for every request")),
        ),
        hint="Look for loops that wait for a marker, and for regular expressions that backtrack.",
    )


def leaves_others_alone(rule: str) -> Rule:
    """Return the rule about what loading leaves to others."""
    return sharing.leaves_others_alone(
        rule, *sharing.FRONT_END, MADE, where=sharing.IN_FRONT_END, heading="Loading"
    )


def streaming(
    prefix: str, whole: str, parts: str, base: Callable[[str, str], Source]
) -> tuple[Rule, Rule]:
    """Return the rules that an answer says the same token by token, and cut anywhere.

    Args:
        prefix: of the ids.
        whole: the method for whole answers; that for streamed ones is called after it.
        parts: what an answer is parted into.
        base: names a symbol of the base class, and its words.

    """
    streamed = f"{whole}_streaming"
    return Rule(
        id=f"{prefix}-04",
        title="Streamed token by token, an answer says the same",
        statement=(
            f"The deltas of {streamed}, one for each token, add up to the {parts} that {whole} "
            "returns of the whole answer."
        ),
        level=Level.MUST,
        evidence=SERVED,
        section="Streaming",
        sources=(sentence(base(streamed, "extracting ... from an incomplete response")),),
        hint="Print the deltas of the answer in the message, one for each token.",
        resembles=("vllm-project/vllm#47901", "vllm-project/vllm#48294"),
    ), Rule(
        id=f"{prefix}-05",
        title="Where an answer is cut makes no difference",
        statement=(
            "However the tokens of an answer are parted into deltas, one for all of it included, "
            f"they add up to the same {parts}."
        ),
        level=Level.MUST,
        evidence=SERVED,
        section="Streaming",
        sources=(
            sentence(base(streamed, "delta_token_ids: Sequence[int], as many as there are")),
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
        ),
    )


def others(prefix: str) -> tuple[Rule, ...]:
    """Return the rules about other requests, and about answers that make no sense."""
    error = Source(_LOOP, "an exception of the parser ends the stream with an error")
    return (
        Rule(
            id=f"{prefix}-09",
            title="A request leaves nothing to another one",
            statement=(
                "An answer gives the same after others, after one that was broken off, and beside "
                "one that is streamed at the same time."
            ),
            level=Level.MUST,
            evidence=SERVED,
            section="Requests",
            sources=(changes(MADE),),
            hint="Keep state on self, made in __init__: not on the class, nor in the module.",
        ),
        Rule(
            id=f"{prefix}-10",
            title="An answer may end anywhere",
            statement="An answer that ends after any token, as by max_tokens, never raises.",
            level=Level.SHOULD,
            evidence=SERVED,
            section="Faults",
            sources=(error,),
            hint="Look for an index, a split or a decoder that takes the rest for granted.",
        ),
        Rule(
            id=f"{prefix}-11",
            title="Malformed answers do not raise",
            statement="Whatever the model says, the parser returns what it can, or all as content.",
            level=Level.SHOULD,
            evidence=SERVED,
            section="Faults",
            sources=(error,),
            hint="A model begins twice, never ends, and writes arguments that are no object.",
        ),
    )
