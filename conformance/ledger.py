# SPDX-License-Identifier: Apache-2.0
"""What was seen of a plugin in a live engine or server, and the verdicts that follow from it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Iterator

import attrs

from conformance.rules import Evidence
from conformance.verdict import Cause, Reason, RuleResult, Verdict, awaited, caused, must_wait


@attrs.define
class Ledger:
    """Troubles and sightings, by rule."""

    evidence: Evidence
    troubles: dict[str, str] = attrs.field(factory=dict)
    seen: Counter[str] = attrs.field(factory=Counter)
    #: Why a rule does not apply, unless it is seen all the same.
    beside: dict[str, str] = attrs.field(factory=dict)
    #: What else is to be said of a rule that is not broken, or why it could not be shown.
    remarks: dict[str, str] = attrs.field(factory=dict)
    #: Why this evidence cannot carry what would show a rule.
    out_of_reach: dict[str, str] = attrs.field(factory=dict)
    #: The rules that are broken by engines or servers that do not start.
    unstarted: set[str] = attrs.field(factory=set)
    #: Why nothing more can be seen; rules that were seen before keep their verdict.
    blocked: Reason | None = None
    fault: str | None = None  #: the harness's own, or the runtime's
    #: Whether a plugin counts as having acted where all that is known of a rule is its failure.
    failing_is_acting: bool = True
    _seconds: float = attrs.field(init=False, default=0.0)

    def fail(self, rule: str, message: str) -> None:
        """Note that a rule is broken; the first message stands."""
        self.advise(rule, message)
        self.blocked = self.blocked or must_wait([rule], message)

    def did_not_start(self, rule: str, message: str) -> None:
        """Note that a rule is broken, unless nothing starts without the plugin either."""
        self.fail(rule, message)
        self.unstarted.add(rule)

    def advise(self, rule: str, message: str) -> None:
        """Note that a rule is broken that no other one waits for."""
        self.troubles.setdefault(rule, message)

    def stop(self, why: Reason) -> None:
        """Note that nothing more can be seen, which is no fault of the plugin."""
        self.blocked = self.blocked or why

    def saw(self, rule: str, count: int = 1) -> None:
        """Note that a rule was seen to hold."""
        self.seen[rule] += count

    def include(self, other: Ledger) -> None:
        """Note what was noted in another process."""
        for rule, message in other.troubles.items():
            self.advise(rule, message)
        self.seen.update(other.seen)
        self.remarks |= other.remarks
        self.blocked = self.blocked or other.blocked
        self.fault = self.fault or other.fault

    @property
    def over(self) -> bool:
        """Whether nothing more is to be seen."""
        return self.blocked is not None or self.fault is not None

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Take the time of a block, which the next result is charged with."""
        started = time.perf_counter()
        yield
        self._seconds = time.perf_counter() - started

    def result(self, rule: str) -> RuleResult:
        """Judge one rule by what is noted."""
        seconds, self._seconds = self._seconds, 0.0
        count = self.seen[rule]
        if rule in self.troubles:
            said = f"{self.evidence}: {self.troubles[rule]}"
            found = self._result(rule, Verdict.FAIL, max(count, 1), seconds, said)
            found = attrs.evolve(found, unstarted=rule in self.unstarted)
            return found if self.failing_is_acting else attrs.evolve(found, acted=count)
        if rule in self.beside and not count:
            return self._result(rule, Verdict.NOT_APPLICABLE, 0, seconds, self.beside[rule])
        if self.fault is not None:
            fault = Cause(f"fault: {self.evidence}", self.fault)
            return self._result(rule, Verdict.ERROR, count, seconds, fault)
        if count:
            return self._result(rule, Verdict.PASS, count, seconds, self.remarks.get(rule))
        why = self.remarks.get(rule) or self._stopped()
        found = self._result(rule, Verdict.NOT_VERIFIED, 0, seconds, why)
        if rule not in self.out_of_reach or found.waits_for:
            return found
        told = self.out_of_reach[rule]
        return attrs.evolve(found, message=told, out_of_reach=True, cause=None)

    def _stopped(self) -> Reason:
        """Return why nothing was seen of a rule: of all of them it is the same."""
        if isinstance(self.blocked, str):
            return Cause(f"stopped: {self.evidence}", self.blocked)
        unseen = f"nothing in this run showed it ({self.evidence})"
        return self.blocked or Cause(f"not seen: {self.evidence}", unseen)

    def _result(
        self, rule: str, verdict: Verdict, count: int, seconds: float, why: Reason | None
    ) -> RuleResult:
        said = None if why is None else str(why)
        return RuleResult(
            rule,
            verdict,
            self.evidence,
            count,
            count,
            seconds,
            said,
            waits_for=awaited(why),
            cause=caused(why),
        )
