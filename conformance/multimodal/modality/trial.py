# SPDX-License-Identifier: Apache-2.0
"""One plugin of a modality in the simulator, rule by rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from conformance.checking import Simulation
from conformance.findings import Finding
from conformance.multimodal.modality.bench import Bench, ConstructorRaised
from conformance.multimodal.modality.stock import Sample
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.interruption import PluginExited, PluginHung

LOADS, NAMED, SURVIVES = "MM-41", "MM-42", "MM-43"


@attrs.define
class Trial(Simulation):
    """One plugin and its bench."""

    loads: ClassVar[str] = LOADS
    survives: ClassVar[str] = SURVIVES
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {
        ConstructorRaised: (LOADS, "making an instance without arguments raised {}"),
        PluginHung: (SURVIVES, "{}"),
        PluginExited: (SURVIVES, "{}"),
    }

    bench: Bench
    budget: Budget

    def holds(self, rule: str) -> bool:
        """Tell whether a rule holds, so that another can build on it."""
        return self.find(rule).verdict is Verdict.PASS

    def known(self) -> tuple[Sample, ...]:
        """Return the samples that the plugin takes, none where nobody knows any."""
        return self.bench.good if self.bench.sorted_out() else ()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()}

    def waits(self, rule: str) -> Finding | None:
        """Return the finding that a rule must wait for another one, or None."""
        if rule == LOADS:
            return None
        named = () if rule == NAMED else (NAMED,)
        return self.broken((LOADS, *named, *self.checks[rule].after))

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
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


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the smallest history as a case has it: the first column holds numbers."""
    return {"columns": list(columns), "rows": [list(row) for row in rows]}
