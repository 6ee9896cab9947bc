# SPDX-License-Identifier: Apache-2.0
"""Histories of case files, played again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.counterexample.source import choices
from conformance.inputs import history
from conformance.logits import execution
from conformance.logits.contract import Contract
from conformance.logits.fuzzing.serving import refused
from conformance.logits.played import UNSAMPLED, Kind
from conformance.logits.waiting import Found
from conformance.suite import Replayed

#: What a case shows now that raised another exception when it was written, or none.
_OTHER = "raised-otherwise"


def played_again(contract: Contract, cls: type, case: Mapping[str, Any], model: str) -> Replayed:
    """Play a history again; return the kinds of trouble there are now, and a message."""
    sets = choices(case["parameters"])
    if case["trouble"]["kind"] == Kind.MEANING:
        # What its author says stands in the program: the profile may not be here.
        found, said = execution.again(cls, contract.means, contract.generation, case)
        return [Kind.MEANING.value if kind == "calls" else kind for kind in found], said
    bench = contract.bench(cls, model, sets, case["seed"], Found.of(case.get("waits", {})))
    bench.tolerant = case["trouble"]["kind"] not in UNSAMPLED
    shape = contract.strata.named(case["stratum"])
    steps = history.from_json(case["history"])
    if "request" in case and refused(cls, sets[history.SENT]):
        return [], ""
    masked = bench.masking.wanted
    troubles = contract.play(bench, steps, shape).troubles
    if not troubles and bench.masking.wanted != masked:
        # It ended at a row that came masked; by now none does, as when the case was written.
        troubles = contract.play(bench, steps, shape).troubles
    error = case["trouble"].get("error")
    kinds = [each.kind.value if each.error == error else _OTHER for each in troubles]
    return kinds, "; ".join(each.message for each in troubles)
