# SPDX-License-Identifier: Apache-2.0
"""One hook in the simulator, rule by rule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from conformance.classifier_hook import attributes, demonstrations, isolation, scoring, timing
from conformance.classifier_hook.bench import ConstructorRaised
from conformance.classifier_hook.calls import HookExited
from conformance.findings import Finding, obstructed, passed, simulated, waiting
from conformance.interruption import PluginHung
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.classifier_hook.bench import Bench
    from conformance.classifier_hook.traffic import Shape
    from conformance.settings import Budget
    from conformance.untouched import Untouched

LOADS, SURVIVES, STEADY = "CH-01", "CH-29", "CH-18"


def _shape(wanted: Shape) -> Callable[[Trial], Finding]:
    return lambda trial: isolation.shape(trial, wanted)


def _survives(trial: Trial) -> Finding:
    """All that the other rules do with the hook ends."""
    count = sum(trial.find(rule).examples for rule in CHECKS if rule != SURVIVES)
    return trial.obstacle(SURVIVES) or passed(count, count)


CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "CH-01": attributes.made,
    **{rule: attributes.about(name) for name, rule in attributes.RULE_OF.items()},
    "CH-02": attributes.named,
    "CH-07": attributes.constant,
    "CH-10": scoring.json_values,
    "CH-11": scoring.allows,
    "CH-12": scoring.blocks,
    "CH-13": scoring.replaces,
    "CH-14": scoring.annotates,
    "CH-15": scoring.any_text,
    "CH-16": scoring.any_context,
    "CH-17": scoring.reads_only,
    "CH-18": scoring.steady,
    "CH-20": timing.waits,
    "CH-21": timing.works,
    "CH-22": timing.in_time,
    "CH-23": timing.ends,
    "CH-24": timing.leaves_nothing,
    "CH-29": _survives,
    "CH-30": _shape(isolation.SEQUENCE),
    "CH-31": _shape(isolation.TOGETHER),
    "CH-32": _shape(isolation.SAME_IDS),
    "CH-33": _shape(isolation.LEAVING),
    "CH-34": isolation.own_scores,
    "CH-35": isolation.forgets,
    "CH-36": isolation.other_loop,
}

#: What must be right before anything can be scored, nearest to the cause first.
_BASIC: tuple[tuple[str, Callable[[Bench], str | None]], ...] = (
    ("CH-05", lambda bench: attributes.trouble(bench, "score")),
    ("CH-22", timing.endless),
    ("CH-17", scoring.changes),
    ("CH-16", scoring.needs),
    ("CH-15", scoring.raises),
    ("CH-10", scoring.invalid),
)

#: Rules about attributes, which need nothing to be scored.
_OF_ATTRIBUTES = frozenset((LOADS, *attributes.RULE_OF.values()))

#: Rules that another one must hold for.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "CH-07": ("CH-02", "CH-03", "CH-04", "CH-06"),
    "CH-11": ("CH-03",),
    "CH-12": ("CH-03",),
    "CH-14": ("CH-03",),
    "CH-22": ("CH-04",),
    "CH-31": ("CH-30",),
    "CH-32": ("CH-30", "CH-31"),
    "CH-33": ("CH-30", "CH-31"),
    "CH-36": ("CH-30", "CH-31"),
}

#: Rules that compare scores.
_COMPARING = frozenset(("CH-30", "CH-31", "CH-32", "CH-33", "CH-34", "CH-36"))


@attrs.define
class Trial:
    """One hook and its bench; checks are made when a rule first asks for them."""

    bench: Bench
    budget: Budget
    #: A process in which nothing has been done with the hook, for programs of failures.
    untouched: Untouched | None = None
    _findings: dict[str, Finding] = attrs.field(factory=dict)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = None
    #: The first of the basic rules that does not hold; empty where all do.
    _trouble: str | None = None

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        finding = self.find(rule)
        case = None
        if finding.verdict is Verdict.FAIL:
            case = demonstrations.shown(self, rule, finding)
        return simulated(rule, finding, time.perf_counter() - started, case)

    def find(self, rule: str) -> Finding:
        """Judge one rule, once."""
        if rule not in self._findings:
            self._findings[rule] = self._find(rule)
        return self._findings[rule]

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()}

    def close(self) -> None:
        """End the trial's second process."""
        if self.untouched is not None:
            self.untouched.close()

    def _find(self, rule: str) -> Finding:
        if self._obstacle is None:
            try:
                return self._waits(rule) or CHECKS[rule](self)
            except ConstructorRaised as error:
                self._obstacle = (LOADS, f"making an instance without arguments raised {error}")
            except (PluginHung, HookExited) as error:
                self._obstacle = (SURVIVES, str(error))
        found = self.obstacle(rule)
        assert found is not None
        return found

    def obstacle(self, rule: str) -> Finding | None:
        """Return what a rule is where nothing can be scored, or None where it can."""
        return None if self._obstacle is None else obstructed(rule, *self._obstacle)

    def _waits(self, rule: str) -> Finding | None:
        """Return that a rule must wait for another one, or None."""
        before = list(_AFTER.get(rule, ()))
        if rule not in _OF_ATTRIBUTES and rule != SURVIVES:
            owner = self._first_trouble()
            if owner not in (None, rule):
                before.insert(0, owner)
        for other in before:
            if (found := self.find(other)).verdict is Verdict.FAIL:
                return waiting(other, found.message)
        if rule in _COMPARING and () in self.bench.unsteady():
            return waiting(STEADY)
        return None

    def _first_trouble(self) -> str | None:
        """Return the rule that must hold before others can be judged, and does not."""
        if self._trouble is None:
            self._trouble = next((rule for rule, find in _BASIC if find(self.bench)), "")
        return self._trouble or None
