# SPDX-License-Identifier: Apache-2.0
"""``scorer/one``: classes that score a text, as an example of an interface of one's own."""

from __future__ import annotations

from conformance.interface import ClassSource, Field, Generation
from conformance.rules import Rule, Source, sentence

DOCUMENT = "Scorers, as their users know them"

RULES = (
    Rule(
        id="TS-01",
        title="The class loads",
        statement="The module can be imported, and the class makes an instance without arguments.",
        section="Loading",
        sources=(sentence(Source(DOCUMENT, "scorers are made without arguments")),),
        hint="Import the module in a plain Python shell, and call the class.",
    ),
    Rule(
        id="TS-02",
        title="A score lies between 0 and 1",
        statement="`score(text)` returns a number from 0 to 1, whatever the text.",
        section="Scores",
        sources=(sentence(Source(DOCUMENT, "a score is a number from 0 to 1")),),
        hint="Look for a sum that is not divided, and for a text that is empty.",
    ),
)


def _likely(source: ClassSource) -> bool:
    return "score_text" in source.defines


generations = (
    Generation(
        interface="scorer",
        name="scorer/one",
        title="Scorer of texts",
        loading_rule="TS-01",
        survival_rule="TS-01",
        rules=RULES,
        fields={"texts": Field(list, "Texts that it is for.", '["a text"]')},
        suite="scorer_suite.suite",
        cases={"text": frozenset(("rule", "seed", "program"))},
        program="scorer_suite.program:program",
        likely=_likely,
    ),
)
