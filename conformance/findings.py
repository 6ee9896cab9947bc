# SPDX-License-Identifier: Apache-2.0
"""What a check found of a plugin."""

from __future__ import annotations

from typing import Any

import attrs

from conformance.rules import Evidence
from conformance.verdict import Cause, Reason, RuleResult, Verdict, awaited, caused, must_wait

#: Examples in which the plugin did something, at the least, for each budget: where more were tried
#: and it did in fewer, a rule is not verified.
LEAST_ACTED = {"quick": 3, "standard": 6, "deep": 20}

#: A plugin that acts in fewer than one of so many examples acts rarely. Where a check has a few
#: fixed examples and the plugin acts in most of them, those are enough.
RARELY = 3

#: Why nothing follows from examples in which the plugin did nothing, or too little.
IDLE = Cause("did nothing", "the plugin did nothing in any example")
SCANT = Cause("acted rarely", "the plugin did something in too few examples")


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
    #: What keeps the rule, and maybe others, from being judged.
    cause: Cause | None = None

    @property
    def clean(self) -> bool:
        """Whether it is a pass."""
        return self.verdict is Verdict.PASS

    def advised(self, advice: str) -> Finding:
        """Return the same with what an author does about it, in the message and in its cause."""
        cause = self.cause and attrs.evolve(self.cause, says=f"{self.cause.says}; {advice}")
        return attrs.evolve(self, message=f"{self.message}; {advice}", cause=cause)

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
        found = unjudged(why, self.examples, self.acted)
        found = attrs.evolve(found, cause=SCANT)
        return found.advised(advice) if advice else found


def few(acted: int, examples: int, least: int) -> str:
    """Say that the plugin did something too rarely for a pass to mean anything."""
    return f"the plugin did something in {acted} of {examples} examples, and {least} are needed"


def passed(examples: int, acted: int | None = None) -> Finding:
    """Return a pass, or ``not-verified`` where the plugin did nothing in any example.

    It acted in all of them if nothing else is said.
    """
    acted = examples if acted is None else acted
    if not acted:
        often = f"{examples} examples" if examples > 1 else "the only example"
        why = f"the plugin did nothing in {often}" if examples else "there was no example to judge"
        cause = IDLE if examples else None
        return Finding(Verdict.NOT_VERIFIED, examples, 0, why, tried=True, cause=cause)
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
    return Finding(
        Verdict.NOT_VERIFIED,
        examples,
        acted,
        message=str(why),
        waits_for=awaited(why),
        cause=caused(why),
    )


def inapplicable(why: str, examples: int = 0) -> Finding:
    """Return ``not-applicable``, and why the rule is about something else."""
    return Finding(Verdict.NOT_APPLICABLE, examples, message=why)


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
        cause=finding.cause,
    )
