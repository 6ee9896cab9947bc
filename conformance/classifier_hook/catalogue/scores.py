# SPDX-License-Identifier: Apache-2.0
"""Rules about what a hook answers."""

from __future__ import annotations

from conformance.classifier_hook.catalogue.sources import BLOCKS, EVERYWHERE, rfc, runtime
from conformance.rules import Level, Rule

SECTION = "Scores"

RULES = (
    Rule(
        id="CH-10",
        title="Scores are a dictionary that JSON can hold",
        statement=(
            "score returns a dict with str keys that holds nothing but JSON values: no NaN, no "
            "tensors, no sets, no objects."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(
            rfc("Return a dict of scores"),
            runtime("scores.py:copied", "anything else is the error `invalid`"),
        ),
        hint="Turn numbers of NumPy and torch into float and int, and NaN into None.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-11",
        title="What the profile allows is let through",
        statement="A text that the profile allows is not blocked: its answer arrives as it was.",
        level=Level.MUST,
        section=SECTION,
        sources=(BLOCKS,),
        hint="Compare the texts of [classifier-hook] allowed with what the hook looks for.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-12",
        title="What the profile blocks is blocked",
        statement=(
            "A blocking hook answers a text that the profile blocks with a truthy 'block'; the "
            "client gets the replacement, or the default refusal."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(BLOCKS,),
        hint="Return {'block': True, ...}; a hook that is not blocking cannot block.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-13",
        title="A replacement is a text",
        statement="'replacement', where a hook that blocks gives one, is a non-empty str, or None.",
        level=Level.MUST,
        section=SECTION,
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
        level=Level.SHOULD,
        section=SECTION,
        sources=(rfc("False = annotation only"),),
        hint="Set blocking = True, or give the score another name.",
    ),
    Rule(
        id="CH-15",
        title="Every text is scored",
        statement=(
            "Empty, huge and odd texts (100,000 characters, control characters, emoji, right to "
            "left, what could not be decoded) get scores: nothing is raised."
        ),
        level=Level.MUST,
        section=SECTION,
        sources=(
            rfc("every completion is scored"),
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
        level=Level.MUST,
        section=SECTION,
        sources=(
            runtime("contract.py:ScoringContext", "logprobs are there where they were asked for"),
        ),
        hint="ctx.logprobs is None unless the request asked for them; extra_fields may be empty.",
        evidence=EVERYWHERE,
    ),
    Rule(
        id="CH-17",
        title="The context is only read",
        statement="score neither assigns to the context nor changes what is in it.",
        level=Level.MUST,
        section=SECTION,
        sources=(
            rfc("The engine builds a ScoringContext"),
            runtime("contract.py:ScoringContext", "nothing in it can be changed"),
        ),
        hint="Copy what you change; object.__setattr__ is no way around.",
    ),
    Rule(
        id="CH-18",
        title="The same completion gets the same scores",
        statement="Scores contain no chance, no clock and no counter.",
        level=Level.SHOULD,
        section=SECTION,
        sources=(
            rfc("every completion is scored for safety, hallucination, audit, or A/B routing"),
        ),
        hint="Clients retry: leave out times and numbers of the call.",
        evidence=EVERYWHERE,
    ),
)
