# SPDX-License-Identifier: Apache-2.0
"""What a check found of a plugin."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.rules import Evidence
from conformance.verdict import Reason, RuleResult, Verdict, awaited, must_wait


@attrs.frozen
class Finding:
    """What a check found: the verdict, what it rests on, and a sentence."""

    verdict: Verdict
    examples: int = 0
    acted: int = 0
    message: str | None = None
    #: For a failure without a history: what ``demonstrations`` needs to show it again.
    case: dict[str, Any] | None = None
    #: Where it cannot be judged before other rules hold: those.
    waits_for: tuple[str, ...] = ()


def passed(examples: int, acted: int) -> Finding:
    """Return a pass, or ``not-verified`` where the plugin did nothing in any example."""
    if not acted:
        return Finding(
            Verdict.NOT_VERIFIED, examples, 0, f"the plugin did nothing in {examples} examples"
        )
    return Finding(Verdict.PASS, examples, acted)


def failed(
    message: str,
    examples: int = 1,
    acted: int | None = None,
    *,
    case: dict[str, Any] | None = None,
) -> Finding:
    """Return a failure."""
    acted = examples if acted is None else acted
    return Finding(Verdict.FAIL, examples, acted, message, case)


def unjudged(why: Reason, examples: int = 0, acted: int = 0) -> Finding:
    """Return ``not-verified``, and why that is all that can be said."""
    return Finding(Verdict.NOT_VERIFIED, examples, acted, message=str(why), waits_for=awaited(why))


def waiting(owner: str, why: str | None = None) -> Finding:
    """Return ``not-verified``: nothing can be said before the rule *owner* holds."""
    return unjudged(must_wait([owner], why))


def obstructed(rule: str, owner: str, message: str) -> Finding:
    """Return what a rule is while *owner* is broken: broken itself, or one that must wait."""
    return failed(message) if rule == owner else waiting(owner, message)


def simulated(
    rule: str, finding: Finding, seconds: float, counterexample: dict[str, Any] | None
) -> RuleResult:
    """Return what a finding in the simulator says about a rule."""
    return RuleResult(
        rule=rule,
        verdict=finding.verdict,
        evidence=Evidence.SIMULATOR,
        examples=finding.examples,
        acted=finding.acted,
        seconds=seconds,
        message=finding.message,
        counterexample=counterexample,
        waits_for=finding.waits_for,
    )
