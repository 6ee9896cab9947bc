# SPDX-License-Identifier: Apache-2.0
"""A plugin that nobody has, and certificates of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from conformance.generations import named
from conformance.plugin.target import Plugin
from conformance.reporting import certificate
from conformance.rules import Evidence
from conformance.settings import Settings
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Mapping

GENERATION = named("logits/batch")

PLUGIN = Plugin(
    target="plugins/sample.py:Sample",
    interface=GENERATION.interface,
    generation=GENERATION.name,
    module="sample",
    qualname="Sample",
    root="/plugins",
    path="/plugins/sample.py",
    digest="sha256:" + "0" * 64,
    version="1.2.3",
)

SETTINGS = Settings(targets=(PLUGIN.target,))

CONTEXT = {
    "vllm": "0.32.0",
    "torch": "2.13.0",
    "python": "3.11.7",
    "platform": "Linux x86_64",
    "device": "cpu",
    "runner": "V1",
    "model": "tiny-llama",
    "profile": None,
}

#: A newcomer that does not opt in gets the token of the request before it.
COUNTEREXAMPLE: dict[str, Any] = {
    "kind": "history",
    "stratum": "replaced",
    "seed": 7,
    "history": [
        {"join": [{"name": "A", "prompt": [67], "params": ["on", 0]}]},
        {},
        {},
        {"finish": ["A"], "join": [{"name": "B", "prompt": [67], "params": ["off", 0]}]},
    ],
    "parameters": [
        {"choice": ["on", 0], "keywords": {"extra_args": {"target_token": 67}}},
        {"choice": ["on", 1], "keywords": {"extra_args": {"target_token": 5}}},
        {"choice": ["off", 0], "keywords": {}},
    ],
    "used": [["off", 0], ["on", 0]],
    "lines": [
        {"step": 0, "events": "A joins (on[0], 1 tokens)", "update": "added=[0]", "rows": ["A"]},
        {"step": 1, "events": "advance", "update": "None", "rows": ["A"], "quiet": True},
        {"step": 2, "events": "advance", "update": "None", "rows": ["A"], "quiet": True},
        {
            "step": 3,
            "events": "A finishes, B joins (off[0], 1 tokens)",
            "update": "added=[0]",
            "rows": ["B"],
        },
    ],
    "trouble": {
        "kind": "opt-out",
        "step": 3,
        "message": "the row of a request that did not opt in was changed",
        "request": "B",
        "row": 0,
        "tokens": [[0, "-inf", -1.0049], [1, "-inf", -1.8873]],
    },
}


def results(
    verdicts: Mapping[str, Verdict] | None = None,
    *,
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,),
) -> list[RuleResult]:
    """Return a result for every rule: a pass, but for the verdicts that are given by rule id."""
    found = []
    for rule in GENERATION.rules:
        verdict = (verdicts or {}).get(rule.id, Verdict.PASS)
        for kind in rule.evidence:
            if kind in evidence:
                told = None if verdict is Verdict.PASS else f"{rule.id} is {verdict}"
                case = COUNTEREXAMPLE if verdict is Verdict.FAIL else None
                found.append(RuleResult(rule.id, verdict, kind, 200, 143, 0.25, told, case))
    return found


def sample(
    verdicts: Mapping[str, Verdict] | None = None,
    *,
    evidence: tuple[Evidence, ...] = (Evidence.SIMULATOR,),
    interrupted: bool = False,
) -> dict[str, Any]:
    """Return a certificate with these verdicts, and passes everywhere else."""
    return certificate.build(
        PLUGIN,
        results(verdicts, evidence=evidence),
        settings=attrs.evolve(SETTINGS, evidence=evidence),
        context=CONTEXT,
        seconds=9.5,
        interrupted=interrupted,
    )
