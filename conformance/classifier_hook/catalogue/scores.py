# SPDX-License-Identifier: Apache-2.0
"""Rules about what a hook answers."""

from __future__ import annotations

from conformance.classifier_hook.catalogue.sources import BLOCKS, rfc, runtime
from conformance.rules import EVERYWHERE, Rule, Source, section, sentence

RULES = section(
    "Scores",
    Rule(
        id="CH-10",
        title="Scores are a dictionary",
        statement="score returns a dict with str keys, for every text and in every context.",
        sources=(
            sentence(rfc("Return a dict of scores")),
            runtime("scores.py:copied", "anything else is the error `invalid`"),
        ),
        hint="Return {} where there is nothing to say, not None; ctx.stop_reason may be a number.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-38",
        title="Scores are values that JSON can hold",
        statement=(
            "What is in the dictionary are JSON values, for every text and in every context: no "
            "NaN, no tensors, no sets, no objects."
        ),
        sources=(
            rfc("The OpenAI serving layer serializes the modified response"),
            runtime("scores.py:copied", "anything else is the error `invalid`"),
        ),
        hint="Turn numbers of NumPy and torch into float and int, and NaN into None; tokens that a "
        "grammar excludes have the log probability minus infinity. Only a "
        "SHOULD: the RFC says dict[str, Any], and leaves open whether scores are serialized.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-11",
        title="What the profile allows is let through",
        statement="A text that the profile allows is not blocked: its answer arrives as it was.",
        sources=(sentence(BLOCKS),),
        hint="Compare the texts of [classifier-hook] allowed with what the hook looks for.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-12",
        title="What the profile blocks is blocked",
        statement=(
            "A text that the profile blocks is answered with a truthy 'block' by a hook with "
            "blocking = True; the client gets the replacement, or the default refusal. Where the "
            "hook looks at a completion in pieces, none is lost between two of them."
        ),
        sources=(sentence(BLOCKS),),
        hint="Return {'block': True, ...}; a hook that is not blocking cannot block. Pieces that "
        "are scored one by one must overlap.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-13",
        title="A replacement is a text",
        statement="'replacement', where a hook that blocks gives one, is a non-empty str, or None.",
        sources=(
            BLOCKS,
            runtime("scores.py:decided", "anything else becomes the default refusal"),
        ),
        hint="Leave 'replacement' out where the default refusal is wanted.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-14",
        title="A hook that annotates does not ask to block",
        statement="A hook with blocking = False does not answer with a truthy 'block'.",
        sources=(rfc("False = annotation only"),),
        hint="Set blocking = True, or give the score another name.",
    ),
    Rule(
        id="CH-15",
        title="Every text is scored",
        statement=(
            "Empty, huge and odd texts (100,000 characters, 2,000 brackets, control characters, "
            "emoji, right to left, what could not be decoded) get scores: nothing is raised."
        ),
        sources=(
            sentence(rfc("every completion is scored")),
            runtime("dispatch.py:_Call", "what a hook raises is the error `exception`"),
        ),
        hint="A model may stop at once, or go on for ever: look at what is done with the text.",
    ),
    Rule(
        id="CH-16",
        title="Every context is taken",
        statement=(
            "With and without logprobs, extra fields and metadata, for every finish reason, every "
            "request id and every completion of a request, the hook gives scores."
        ),
        sources=(
            runtime("contract.py:ScoringContext", "logprobs are there where they were asked for"),
            sentence(rfc("every completion is scored")),
        ),
        hint="ctx.logprobs is None unless the request asked for them; extra_fields may be empty.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-17",
        title="The context is only read",
        statement="score neither assigns to the context nor changes what is in it.",
        sources=(
            rfc("The engine builds a ScoringContext"),
            runtime("contract.py:own", "each hook gets a copy that shares nothing"),
        ),
        hint="Copy what you change.",
    ),
    Rule(
        id="CH-18",
        title="The same completion gets the same scores",
        statement=(
            "Scores contain no chance, no clock, no counter, and nothing in the order of a set of "
            "texts, which is another one in each process."
        ),
        sources=(
            rfc("every completion is scored for safety, hallucination, audit, or A/B routing"),
        ),
        hint="Clients retry: leave out times and numbers of the call, and sort what comes out of "
        "a set.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-39",
        title="Scores are what the author says they are",
        statement=(
            "Where a profile has `scores`, each of its texts gets them; where it has `expected`, "
            "every text gets the scores that this function returns for its context."
        ),
        sources=(
            sentence(Source("the plugin's profile", "scores, expected: what the hook means")),
        ),
        hint="One of the two is wrong: the hook, or the profile. Scores that the profile does not "
        "name may be any.",
        evidence=EVERYWHERE,
    ),
)
