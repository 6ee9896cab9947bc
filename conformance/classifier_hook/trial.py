# SPDX-License-Identifier: Apache-2.0
"""One hook in the simulator: what each rule waits for, and what ends all judging."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import attrs

from conformance.checking import Simulation
from conformance.classifier_hook.bench import Bench, ConstructorRaised
from conformance.findings import Finding, unjudged, waiting
from conformance.settings import Budget
from conformance.verdict import Cause
from conformance.watching.interruption import OutOfTime, PluginExited, PluginHung
from conformance.watching.untouched import Untouched

LOADS, SURVIVES, STEADY, IN_TIME = "CH-01", "CH-29", "CH-18", "CH-22"

#: Rules about attributes, which need nothing to be scored.
_OF_ATTRIBUTES = frozenset((LOADS, "CH-02", "CH-03", "CH-04", "CH-05", "CH-06"))

#: Rules of many calls.  The runtime cancels each call of a hook that is never in time, so these
#: rules could show only that, and would take minutes.
_TIMELY = frozenset(("CH-07", "CH-15", "CH-16", "CH-17", STEADY, "CH-23", "CH-24")).union(
    f"CH-{number}" for number in range(30, 38)
)

#: Rules about how long the event loop is held.
_HOLDING = ("CH-20", "CH-21")

#: Rules that compare scores.
COMPARING = frozenset(("CH-30", "CH-31", "CH-32", "CH-33", "CH-34", "CH-36"))


@attrs.define
class Trial(Simulation):
    """One hook and its bench."""

    survives: ClassVar[str] = SURVIVES
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {
        ConstructorRaised: (LOADS, "{}"),
        PluginHung: (SURVIVES, "{}"),
        PluginExited: (SURVIVES, "{}"),
    }

    bench: Bench
    budget: Budget
    #: A process in which nothing has been done with the hook, for programs of failures.
    untouched: Untouched | None = None
    #: What must hold before anything can be scored: a rule, and what returns how it is broken.
    basic: tuple[tuple[str, Callable[[Bench], object]], ...] = attrs.field(kw_only=True)
    #: Makes a counterexample that stands by itself.
    show: Callable[[Trial, str, Finding], dict[str, Any]] = attrs.field(kw_only=True)

    def attempt(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        try:
            return self._waits(rule) or self.checks[rule].judge(self)
        except OutOfTime as error:
            if rule in _HOLDING:
                raise
            # Callbacks of the event loop are no calls, and hold it as well.
            why = unjudged(Cause("out of time", str(error)))
            return self.broken(_HOLDING) or why

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return the counterexample of a failure, with a program wherever one shows it."""
        return self.show(self, rule, finding)

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()}

    def close(self) -> None:
        """End the trial's second process."""
        if self.untouched is not None:
            self.untouched.close()

    def _waits(self, rule: str) -> Finding | None:
        """Return the finding that a rule must wait for another one, or None."""
        before, owner = self.checks[rule].after, None
        if rule not in _OF_ATTRIBUTES:
            owner = self.once(Trial._first_trouble)
            if owner not in (None, rule):
                before = (owner, *before)
        # CH-22 itself waits for the first basic rule that does not hold.
        if rule in _TIMELY and owner != rule:
            before = (*before, IN_TIME)
        if found := self.broken(before):
            return found
        if rule in COMPARING and () in self.bench.unsteady():
            return waiting(STEADY)
        return None

    def _first_trouble(self) -> str | None:
        """Return the rule that must hold before others can be judged, and does not."""
        return next((rule for rule, find in self.basic if find(self.bench)), None)
