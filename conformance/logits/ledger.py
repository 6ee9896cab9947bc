# SPDX-License-Identifier: Apache-2.0
"""What was seen of a plugin in a live engine or server, and the verdicts that follow from it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

from conformance.verdict import RuleResult, Verdict, must_wait

if TYPE_CHECKING:
    from conformance.history import Choice
    from conformance.logits.parameters import Parameters
    from conformance.logits.roles import Roles
    from conformance.rules import Evidence


@attrs.define
class Ledger:
    """Troubles and sightings, by rule."""

    roles: Roles
    evidence: Evidence
    parameters: Parameters
    troubles: dict[str, str] = attrs.field(factory=dict)
    seen: Counter[str] = attrs.field(factory=Counter)
    acted: set[Choice] = attrs.field(factory=set)  #: parameter sets that had an effect
    #: Why nothing more can be seen; rules that were seen before keep their verdict.
    blocked: str | None = None
    fault: str | None = None  #: the harness's own
    claims: bool = True  #: whether the plugin claims argmax invariance, as far as is known

    def fail(self, rule: str, message: str) -> None:
        """Note that a rule is broken; the first message stands."""
        self.troubles.setdefault(rule, message)
        if self.blocked is None:
            self.blocked = must_wait([rule], message)

    def stop(self, why: str) -> None:
        """Note that nothing more can be seen, which is no fault of the plugin."""
        self.blocked = self.blocked or why

    def saw(self, rule: str, count: int = 1) -> None:
        """Note that a rule was seen to hold."""
        self.seen[rule] += count

    def result(self, rule: str, seconds: float) -> RuleResult:
        """Judge one rule by what is noted."""
        verdict, message, acted = self._judge(rule)
        examples = max(self.seen[rule], acted, int(verdict is Verdict.FAIL))
        return RuleResult(rule, verdict, self.evidence, examples, acted, seconds, message)

    def _judge(self, rule: str) -> tuple[Verdict, str | None, int]:  # noqa: PLR0911 - a table of cases
        count = self.seen[rule]
        if rule in self.troubles:
            return Verdict.FAIL, f"{self.evidence}: {self.troubles[rule]}", count
        if rule == self.roles.opt_out and not self.parameters.off:
            return Verdict.NOT_APPLICABLE, "the plugin has no opt-in", 0
        if rule in self.roles.claimed and not self.claims:
            return Verdict.NOT_APPLICABLE, "the plugin does not claim argmax invariance", 0
        if rule == self.roles.refuses and not self.parameters.invalid:
            return Verdict.NOT_APPLICABLE, "the profile names no invalid requests", 0
        if self.fault is not None:
            return Verdict.ERROR, self.fault, count
        if rule == self.roles.acts and not self.blocked:
            return self._judge_effect()
        if count:
            return Verdict.PASS, None, count
        why = self.blocked or f"nothing in this run showed it ({self.evidence})"
        return Verdict.NOT_VERIFIED, why, 0

    def _judge_effect(self) -> tuple[Verdict, str | None, int]:
        idle = [
            f"on[{index}]"
            for index in range(len(self.parameters.on))
            if ("on", index) not in self.acted
        ]
        if self.parameters.on and not idle:
            return Verdict.PASS, None, len(self.acted)
        what = ", ".join(idle) or "no known parameter"
        # What is asked of an engine is little: not everything that has an effect has one there,
        # and what has none anywhere shows in the simulator.
        verdict = Verdict.PASS if self.acted else Verdict.NOT_VERIFIED
        return verdict, f"{what} had no effect here ({self.evidence})", len(self.acted)
