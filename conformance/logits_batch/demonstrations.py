# SPDX-License-Identifier: Apache-2.0
"""From a failure to a counterexample that stands by itself: calls, and what to expect of them.

The failing history or check is gone through again in a process in which nothing has been done
with the plugin before, and written down.  The shortest part of it whose program fails there too
is kept.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance.counterexample.logits_checks import SCRIPTED
from conformance.counterexample.source import choices, encoded
from conformance.findings import Finding
from conformance.logits.calls import observed
from conformance.logits.cases import parameters
from conformance.logits.contract import Contract
from conformance.logits.execution import hurry, logits, shortest
from conformance.logits.keywords import admissible
from conformance.logits.played import Kind
from conformance.logits.trial import Trial
from conformance.logits_batch import excerpts
from conformance.logits_batch.bench import Bench
from conformance.logits_batch.excerpts import Shown
from conformance.logits_batch.scenes import Record, of_check, of_history
from conformance.logits_batch.transcript import Recorder
from conformance.watching.untouched import Ended


def shown(trial: Trial, rule: str, finding: Finding, case: dict[str, Any] | None) -> Any:  # noqa: ANN401 - JSON values
    """Return the counterexample of a failure, with calls that show it wherever there are some."""
    bench = trial.bench
    kept = case or {
        "kind": "calls",
        "rule": rule,
        "seed": bench.seed,
        "parameters": parameters(bench.parameters),
    }
    errand = Record(
        rule,
        trial.fqcn,
        bench.model,
        trial.parameters,
        bench.seed,
        trial.budget,
        hangs=rule == "LB-24" or _hangs(finding.case or {}),
        case=case or finding.case,
    )
    kept = {**kept, "logits": logits(trial)}
    try:
        found = _shortest(trial, rule, kept, errand)
    except Ended:
        found = None  # the plugin ends the process that it is in
    return {**kept, **found} if found else case or _facts(finding)


def _hangs(case: Mapping[str, Any]) -> bool:
    """Tell whether a call of a failure does not return."""
    return bool(case.get("hangs")) or case.get("trouble", {}).get("kind") == Kind.HUNG


def _facts(finding: Finding) -> dict[str, Any] | None:
    """Return what a check says about its failure, where no program shows it."""
    return finding.case if finding.case and "request" in finding.case else None


def _shortest(trial: Trial, rule: str, kept: Shown, errand: Record) -> Shown | None:
    """Return the shortest part of a failure that still fails."""
    if errand.case and "calls" in errand.case:
        parts = [{key: errand.case[key] for key in ("calls", "expect")}]
    elif rule in SCRIPTED:
        admitted = admissible(errand.parameters.invalid)
        invalid = [encoded(keywords) for _, keywords, _ in admitted]
        told = {"served", "varied", "lengths", "wider", "pauses"}.intersection(errand.case or ())
        served = errand.case if errand.case and told else {}
        parts = [{"calls": [], "expect": {"is": "script", "invalid": invalid, **served}}]
    else:
        whole: Shown | None = trial.untouched.run(errand)
        parts = [] if whole is None else excerpts.parts(whole)
    return shortest(trial, rule, kept, parts, hangs=errand.hangs)


def record(plugin: type[LogitsProcessor], errand: Record, contract: Contract) -> Shown | None:
    """Go through a failure again; return all calls and the expectation, or None if it holds."""
    try:
        return _record(plugin, errand, contract)
    except Exception:  # noqa: BLE001 - a failure is reported, with or without a program
        traceback.print_exc()
        return None


def _record(plugin: type[LogitsProcessor], errand: Record, contract: Contract) -> Shown | None:
    if errand.hangs:
        hurry()
    sets = errand.parameters.simulated()
    if errand.case is not None and "stratum" in errand.case:
        # Some requests of histories are the harness's own, and not in the profile.
        sets = choices(errand.case["parameters"])
    bench = Bench(plugin, errand.model, sets, errand.seed, errand.parameters.waits)
    bench.meaning = errand.parameters.meaning if errand.rule == contract.means else None
    recorder = Recorder(bench)
    with observed(recorder):
        if errand.case and errand.case.get("kind") == "history":
            expect = of_history(recorder, errand.case)
        else:
            expect = of_check(recorder, plugin, errand, contract)
    if expect is None:
        return None
    return {"calls": [entry for entry in recorder.calls if entry], "expect": expect}
