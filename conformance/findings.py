# SPDX-License-Identifier: Apache-2.0
"""What a check found of a plugin."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.rules import Evidence
from conformance.verdict import Reason, RuleResult, Verdict, awaited, must_wait

#: Examples in which the plugin did something, at the least, for each budget: where more were tried
#: and it did in fewer, a rule is not verified.
LEAST_ACTED = {"quick": 3, "standard": 6, "deep": 20}

#: A plugin that acts in fewer than one of so many examples acts rarely. Where a check has a few
#: fixed examples and the plugin acts in most of them, those are enough.
RARELY = 3


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
    #: Whether examples were tried in which the plugin might have done something.
    tried: bool = False
    #: Whether a process bears it for so short a time that other rules fail by it.
    exhausts: bool = False

    def scant(self, least: int) -> bool:
        """Tell whether it rests on too few examples in which the plugin did something.

        Where it did in all that there are, as in each of a profile's, those are enough.
        """
        return self.tried and self.acted < min(least, self.examples)

    def enough(self, least: int, advice: str = "") -> Finding:
        """Return this finding, or ``not-verified`` where it rests on few examples among many."""
        if not self.acted or not self.scant(least) or self.acted * RARELY >= self.examples:
            return self
        why = few(self.acted, self.examples, least)
        return unjudged(f"{why}; {advice}" if advice else why, self.examples, self.acted)


def few(acted: int, examples: int, least: int) -> str:
    """Say that the plugin did something too rarely for a pass to mean anything."""
    return f"the plugin did something in {acted} of {examples} examples, and {least} are needed"


def passed(examples: int, acted: int) -> Finding:
    """Return a pass, or ``not-verified`` where the plugin did nothing in any example."""
    if not acted:
        often = f"{examples} examples" if examples > 1 else "the only example"
        why = f"the plugin did nothing in {often}" if examples else "there was no example to judge"
        return Finding(Verdict.NOT_VERIFIED, examples, 0, why, tried=True)
    return Finding(Verdict.PASS, examples, acted, tried=True)


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
