# SPDX-License-Identifier: Apache-2.0
"""One plugin of a modality in the simulator, rule by rule."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

import attrs

from conformance.findings import Finding, obstructed, passed, simulated, waiting
from conformance.interruption import PluginHung
from conformance.multimodal.modality import (
    access,
    arrays,
    costs,
    hashes,
    inputs,
    limits,
    registration,
    remains,
    tokens,
    traffic,
)
from conformance.multimodal.modality.bench import ConstructorRaised, Undecided
from conformance.multimodal.modality.calls import PluginExited
from conformance.multimodal.modality.served import Served, finished
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.multimodal.modality.bench import Bench
    from conformance.multimodal.modality.stock import Sample
    from conformance.settings import Budget

LOADS, NAMED, SURVIVES = "MM-41", "MM-42", "MM-43"


def _survives(trial: Trial) -> Finding:
    """All that the other rules do with the plugin ends."""
    count = sum(trial.find(rule).examples for rule in CHECKS if rule != SURVIVES)
    return trial.obstacle(SURVIVES) or passed(count, count)


CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "MM-41": registration.made,
    "MM-42": registration.named,
    "MM-43": _survives,
    "MM-44": limits.bounded,
    "MM-45": limits.steady,
    "MM-46": limits.quick,
    "MM-47": limits.obeyed,
    "MM-48": limits.every_item,
    "MM-49": limits.changes_nothing,
    "MM-50": inputs.takes,
    "MM-51": inputs.forms,
    "MM-52": inputs.raw,
    "MM-53": inputs.client_errors,
    "MM-54": inputs.nonsense,
    "MM-55": inputs.cut,
    "MM-56": costs.bombs,
    "MM-57": costs.headers,
    "MM-58": access.private,
    "MM-59": inputs.own_data,
    "MM-60": inputs.own_copy,
    "MM-61": hashes.steady,
    "MM-62": hashes.covers,
    "MM-63": tokens.whole,
    "MM-64": tokens.never_below,
    "MM-65": tokens.exact,
    "MM-66": tokens.rows,
    "MM-67": tokens.pipeline,
    "MM-68": arrays.numbers,
    "MM-69": arrays.finite,
    "MM-70": arrays.steady,
    "MM-71": traffic.sequence,
    "MM-72": traffic.together,
    "MM-73": traffic.threads,
    "MM-74": traffic.own_arrays,
    "MM-75": remains.closed,
    "MM-76": remains.forgotten,
    "MM-77": arrays.travels,
    "MM-78": arrays.alike,
}

#: Rules that another one must hold for.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "MM-45": ("MM-44",),
    "MM-48": ("MM-47",),
    "MM-49": ("MM-68", "MM-70", "MM-72"),
    "MM-51": ("MM-68", "MM-70", "MM-71"),
    "MM-52": ("MM-68", "MM-70"),
    "MM-60": ("MM-68", "MM-70"),
    "MM-62": ("MM-61", "MM-68", "MM-70"),
    "MM-64": ("MM-63",),
    "MM-65": ("MM-63", "MM-64"),
    "MM-66": ("MM-44", "MM-45", "MM-63", "MM-68", "MM-71"),
    "MM-67": ("MM-44", "MM-45", "MM-63", "MM-64", "MM-68", "MM-70", "MM-71", "MM-72"),
    "MM-69": ("MM-68",),
    "MM-70": ("MM-68",),
    "MM-71": ("MM-68", "MM-70"),
    "MM-72": ("MM-71",),
    "MM-73": ("MM-71", "MM-72", "MM-74"),
    "MM-74": ("MM-68", "MM-71"),
    "MM-77": ("MM-68", "MM-70", "MM-72"),
    "MM-78": ("MM-68",),
}


@attrs.define
class Trial:
    """One plugin and its bench; checks are made when a rule first asks for them."""

    bench: Bench
    budget: Budget
    _findings: dict[str, Finding] = attrs.field(factory=dict)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = None

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # as in production, where a warning ends nothing
            finding = self.find(rule)
        case = self._case(rule, finding) if finding.verdict is Verdict.FAIL else None
        return simulated(rule, finding, time.perf_counter() - started, case)

    def find(self, rule: str) -> Finding:
        """Judge one rule, once."""
        if rule not in self._findings:
            self._findings[rule] = self._find(rule)
        return self._findings[rule]

    def holds(self, rule: str) -> bool:
        """Tell whether a rule holds, so that another can build on it."""
        return self.find(rule).verdict is Verdict.PASS

    def known(self) -> tuple[Sample, ...]:
        """Return the samples that the plugin takes, none where nobody knows any."""
        return self.bench.good if self.bench.sorted_out() else ()

    def finish(self, plugin: Any, found: Served, config: Any) -> Served:  # noqa: ANN401
        """Take an item that was parsed, or not, through the other methods."""
        return finished(plugin, found.item, config) if found.good else found

    def finish_item(self, plugin: Any, item: Any, config: Any) -> Served:  # noqa: ANN401
        """Take an item through the other methods."""
        return finished(plugin, item, config)

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()}

    def _find(self, rule: str) -> Finding:
        if self._obstacle is None:
            try:
                return self._waits(rule) or CHECKS[rule](self)
            except ConstructorRaised as error:
                self._obstacle = (LOADS, f"making an instance without arguments raised {error}")
            except (PluginHung, PluginExited) as error:
                self._obstacle = (SURVIVES, str(error))
            except Undecided as error:
                return Finding(Verdict.NOT_VERIFIED, message=str(error))
        found = self.obstacle(rule)
        assert found is not None
        return found

    def obstacle(self, rule: str) -> Finding | None:
        """Return what a rule is where nothing can be asked, or None where it can."""
        return None if self._obstacle is None else obstructed(rule, *self._obstacle)

    def _waits(self, rule: str) -> Finding | None:
        """Return that a rule must wait for another one, or None."""
        if rule in (LOADS, SURVIVES):
            return None
        before = [LOADS, *_AFTER.get(rule, ())]
        if rule != NAMED:
            before.insert(1, NAMED)
        for other in before:
            if (found := self.find(other)).verdict is Verdict.FAIL:
                return waiting(other, found.message)
        return None

    def _case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return a failure as data: what replaying it needs, and its history where it has one."""
        return {
            "kind": "check",
            "rule": rule,
            "seed": self.bench.seed,
            **self.bench.saved(),
            **({"table": finding.case} if finding.case else {}),
            "folders": [str(folder) for folder in self.bench.folders],
            "parameters": [],
            "invalid": [],
        }
