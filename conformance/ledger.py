# SPDX-License-Identifier: Apache-2.0
"""What was seen of a plugin in a live engine or server, and the verdicts that follow from it."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import attrs

from conformance.verdict import RuleResult, Verdict, must_wait

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.rules import Evidence


@attrs.define
class Ledger:
    """Troubles and sightings, by rule."""

    evidence: Evidence
    troubles: dict[str, str] = attrs.field(factory=dict)
    seen: Counter[str] = attrs.field(factory=Counter)
    #: Why a rule does not apply.
    beside: dict[str, str] = attrs.field(factory=dict)
    #: Why a rule could not be shown.
    unshown: dict[str, str] = attrs.field(factory=dict)
    #: Why nothing more can be seen; rules that were seen before keep their verdict.
    blocked: str | None = None
    fault: str | None = None  #: the harness's own, or the runtime's
    _seconds: float = attrs.field(init=False, default=0.0)

    def fail(self, rule: str, message: str) -> None:
        """Note that a rule is broken; the first message stands."""
        self.advise(rule, message)
        self.blocked = self.blocked or must_wait([rule], message)

    def advise(self, rule: str, message: str) -> None:
        """Note that a rule is broken that no other one waits for."""
        self.troubles.setdefault(rule, message)

    def stop(self, why: str) -> None:
        """Note that nothing more can be seen, which is no fault of the plugin."""
        self.blocked = self.blocked or why

    def saw(self, rule: str, count: int = 1) -> None:
        """Note that a rule was seen to hold."""
        self.seen[rule] += count

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
            message = f"{self.evidence}: {self.troubles[rule]}"
            return self._result(rule, Verdict.FAIL, max(count, 1), seconds, message)
        if rule in self.beside and not count:
            return self._result(rule, Verdict.NOT_APPLICABLE, 0, seconds, self.beside[rule])
        if self.fault is not None:
            return self._result(rule, Verdict.ERROR, count, seconds, self.fault)
        if count:
            return self._result(rule, Verdict.PASS, count, seconds, None)
        why = (
            self.unshown.get(rule)
            or self.blocked
            or f"nothing in this run showed it ({self.evidence})"
        )
        return self._result(rule, Verdict.NOT_VERIFIED, 0, seconds, why)

    def _result(
        self, rule: str, verdict: Verdict, count: int, seconds: float, message: str | None
    ) -> RuleResult:
        return RuleResult(rule, verdict, self.evidence, count, count, seconds, message)
