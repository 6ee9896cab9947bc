# SPDX-License-Identifier: Apache-2.0
"""``hook/rfc``: external classifier hooks, scored by the runtime of ``reference_plugins``."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.classifier_hook import host_rules
from conformance.classifier_hook.catalogue import RULES
from conformance.interface import CHECK_CASE, ClassSource, Field, Generation, refuses

FIELDS: Mapping[str, Field] = {
    "allowed": Field(list, "Texts that it must let through.", '["a harmless text"]'),
    "blocked": Field(list, "Texts that it must block.", '["a text to block"]'),
    "arguments": Field(
        list,
        "Keywords of its constructor; it is certified with each table.",
        '[{ your_argument = "..." }]',
    ),
    "scores": Field(
        list,
        "Texts, and scores that each must get.",
        '[{ text = "a text", scores = { found = 0 } }]',
    ),
    "expected": Field(
        str,
        "What it means: a function of the context that returns the scores.",
        '"my_module:expected"',
    ),
    "unsupported_configurations": refuses("data-parallel-2"),
}


def _likely(source: ClassSource) -> bool:
    return "score" in source.defines and bool({"blocking", "timeout_ms"} & source.sets)


generations = (
    Generation(
        interface="classifier-hook",
        name="hook/rfc",
        title="External classifier hook (RFC 43999)",
        loading_rule="CH-01",
        survival_rule="CH-29",
        configured="CH-41",
        meaning_rule="CH-39",
        rules=RULES,
        host_rules=host_rules.RULES,
        fields=FIELDS,
        suite="conformance.classifier_hook.suite",
        cases={"check": CHECK_CASE},
        program="conformance.counterexample.hook_program:program",
        likely=_likely,
        sign=r"\basync def score\b|\bExternalClassifierHook\b",
        order=4,
    ),
)
