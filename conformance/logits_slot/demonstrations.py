# SPDX-License-Identifier: Apache-2.0
"""From a failure to a counterexample that stands by itself, with a program that shows it.

A failing history is gone through again in a process in which nothing has been done with the
plugin before, and written down as events.  The failure of a check has no history: its program is
a few calls, or the check itself, made small.  The shortest program that fails there, too, is kept.

There is none where the plugin ends its process: the program would end with it, before it could say
what it saw.  Nor is there one of a check that hangs or of parameters that were written to, since
nobody says in which call, or of a fault that needs what the trial did before.
Such a case is gone through again by ``vllm-conformance replay``.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from typing import Any

import attrs

from conformance.counterexample.source import choices, encoded
from conformance.findings import Finding
from conformance.inputs import history
from conformance.logits.calls import observed
from conformance.logits.cases import parameters
from conformance.logits.execution import hurry, logits, shortest
from conformance.logits.meaning import Meaning
from conformance.logits.played import UNSAMPLED, Kind, Trouble
from conformance.logits.trial import Trial
from conformance.logits.waiting import Found
from conformance.logits_slot import scenes
from conformance.logits_slot.bench import Bench
from conformance.logits_slot.journal import Journal, parts
from conformance.logits_slot.play import play
from conformance.logits_slot.strata import STRATA
from conformance.watching.untouched import ERRANDS, Ended

#: What is expected of the row that a trouble is about.
_OF_ROW = {
    Kind.ROW: {"is": "same"},
    Kind.OPT_OUT: {"is": "unchanged", "why": "the request did not opt in"},
    Kind.NAN: {"is": "nan"},
    Kind.INFINITE: {"is": "infinite"},
    Kind.NO_TOKEN: {"is": "no-token"},
    Kind.ANSWER: {"is": "unchanged", "why": "add_request had returned False"},
}

#: What is expected of the last call.
_OF_CALL = {
    Kind.SHAPE: {"is": "shape"},
    Kind.RAISED: {"is": "raises-nothing"},
    Kind.ALONE: {"is": "raises-nothing"},
    Kind.HUNG: {"is": "returns"},
}


@attrs.frozen
class Record:
    """An errand: go through a failing history again, and write everything down."""

    model: str
    case: Mapping[str, Any]
    hangs: bool = False
    meaning: Meaning | None = None
    what: str = "journal"


def shown(trial: Trial, rule: str, finding: Finding, case: dict[str, Any] | None) -> Any:  # noqa: ANN401 - JSON values
    """Return the counterexample of a failure, with a program wherever one shows it."""
    bench = trial.bench
    hangs = case is not None and case["trouble"]["kind"] == Kind.HUNG
    meaning = bench.meaning if rule == trial.contract.means else None
    plain = case or {
        "kind": "check",
        "rule": rule,
        "seed": bench.seed,
        "waits": bench.waits.document(),
        "parameters": parameters(bench.parameters),
        "invalid": [encoded(keywords) for keywords in trial.parameters.invalid],
    }
    kept = {**plain, "logits": logits(trial)}
    try:
        if case is not None:
            parts = trial.untouched.run(Record(bench.model, case, hangs, meaning)) or []
        elif finding.case and "calls" in finding.case:
            parts = [{key: finding.case[key] for key in ("calls", "expect")}]
            hangs = finding.case["hangs"]
        else:
            parts = scenes.of_check(trial, rule, finding.case or {})
        found = shortest(trial, rule, kept, parts, hangs=hangs)
    except Ended:
        found = None  # the plugin ends the process that it is in
    return {**kept, **found} if found else plain


def record(plugin: type, errand: Record) -> list[dict[str, Any]] | None:
    """Play a failing history again; return parts of what was done, with what to expect."""
    try:
        return _record(plugin, errand)
    except Exception:  # noqa: BLE001 - a failure is reported, with or without a program
        traceback.print_exc()
        return None


def _record(plugin: type, errand: Record) -> list[dict[str, Any]] | None:
    case = errand.case
    parameters_of = choices(case["parameters"])
    bench = Bench(
        plugin, errand.model, parameters_of, case["seed"], Found.of(case.get("waits", {}))
    )
    bench.tolerant = case["trouble"]["kind"] not in UNSAMPLED
    bench.meaning = errand.meaning
    journal = Journal(bench)
    if errand.hangs:
        hurry()
    with observed(journal):
        played = play(bench, history.from_json(case["history"]), STRATA.named(case["stratum"]))
    if not played.troubles:
        return None
    kind = case["trouble"]["kind"]
    trouble = next((each for each in played.troubles if each.kind == kind), played.troubles[0])
    if errand.meaning is not None and trouble.kind is Kind.MEANING:
        return parts(journal, {"row": 0, **errand.meaning.shown(trouble)})
    return _of_trouble(journal, trouble)


def _of_trouble(journal: Journal, trouble: Trouble) -> list[dict[str, Any]] | None:
    """Return parts of what was done, with what is to be expected at their end."""
    kind = trouble.kind
    if kind in _OF_CALL:
        return parts(journal, _of_call(journal, kind))
    if kind in (Kind.MUTATED, Kind.PARAMETERS):
        return _of_writing(journal, trouble)
    if kind is Kind.ANSWER and trouble.row is None:
        join = next(e for e in reversed(journal.events) if e["do"] == "join")
        join["to"] = "answer"
        return parts(journal, {"is": "answer"})
    return parts(journal, _of_row(journal, _OF_ROW[kind])) if kind in _OF_ROW else None


def _of_call(journal: Journal, kind: Kind) -> dict[str, Any]:
    """Return what is expected of the call that went wrong."""
    if kind is Kind.SHAPE:
        last = next(e for e in reversed(journal.events) if e["do"] == "process")
        last["to"] = "result"
    return dict(_OF_CALL[kind])


def _of_writing(journal: Journal, trouble: Trouble) -> list[dict[str, Any]] | None:
    """Return parts that end with the call in which the plugin wrote to what it may only read."""
    if trouble.kind is Kind.PARAMETERS:
        batch = (e for e in reversed(journal.events) if e["name"] == "batch")
        next(e for e in batch if e["do"] == "join")["to"] = "params"
        return parts(journal, {"is": "parameters"})
    last = journal.events[-1]
    if last["do"] == "begin":
        return None  # the runner writes, too
    last["to"] = "result"
    return parts(journal, {"is": "only-read", "what": trouble.wrote})


def _of_row(journal: Journal, expect: Mapping[str, str]) -> dict[str, Any]:
    """Mark the calls that gave the row and the row that it should be."""
    judged = journal.judged
    assert judged is not None
    processed = [e for e in journal.events if e["do"] == "process"]
    slot, request = judged["slot"], judged["request"]
    got = next(e for e in reversed(processed) if e["name"] == "batch" and slot in e["slots"])
    got["to"] = "result"
    rows = [row for row, of in enumerate(got["slots"]) if of == slot]
    if expect["is"] == "same":
        alone = [e for e in processed if e["name"] == f"alone {request}"]
        alone[-1]["to"] = "expected"
    return {**expect, "row": rows[judged["number"]], "request": request}


ERRANDS["journal"] = record
