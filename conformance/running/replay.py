# SPDX-License-Identifier: Apache-2.0
"""Playing a saved counterexample again."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Any

from conformance.engine.models import tiny_llama
from conformance.generations import named
from conformance.running.runner import Certification
from conformance.settings import Settings, UsageError
from conformance.worker import JobDied, JobHung


class Outcome(Enum):
    """What a counterexample says about the plugin as it is now."""

    FIXED = "FIXED"
    STILL_FAILS = "STILL FAILS"
    CHANGED = "CHANGED"


def replay_case(path: Path, *, python_path: Sequence[str]) -> tuple[Outcome, str]:
    """Play a case file again; return the outcome and a sentence.

    Raises:
        UsageError: there is no such file, it is no case, or its plugin is gone.

    """
    case = _read(path)
    found = case["counterexample"]
    expected = _expected(found)
    # Without it the plugin would have other variables, or another tokenizer, than it failed with.
    profile = case.get("profile")
    if profile and not (":" in profile or Path(profile).is_file()):
        profile = None
    settings = Settings(targets=(case["target"],), python_path=tuple(python_path), profile=profile)
    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder,
        Certification(settings) as certification,
    ):
        certification.start()
        plugins = certification.load()
        # A class may serve more generations by now than it did.
        plugin = next((p for p in plugins if p.generation == case.get("generation")), plugins[0])
        if plugin.broken:
            loads = any(call["do"] == "load" for call in found.get("calls", ()))
            kinds, message = [expected if loads else _LOADING], plugin.broken
        else:
            arguments = {
                "plugin": plugin,
                "case": case,
                "model": str(tiny_llama()),
                "settings": settings,
            }
            what, log = "conformance.worker.jobs:replay", Path(folder) / "replay.log"
            job = certification.trials.fork(plugin, what, arguments, log, simulates=True)
            try:
                kinds, message = job.ask("replay", limit=120)
            except (JobDied, JobHung) as error:
                kinds, message = [_HANGING], str(error)
    if kinds == ["unreadable"]:
        raise UsageError(f"{path} cannot be played: {message}.")
    where = _WHERE.get(found["kind"], "in this case")
    if not kinds:
        return Outcome.FIXED, f"{case['rule']} holds {where} now"
    if expected in kinds:
        return Outcome.STILL_FAILS, f"{case['rule']}: {message}"
    return Outcome.CHANGED, f"{case['rule']} failed otherwise before; now: {message}"


#: Troubles that are noticed from outside.
_LOADING, _HANGING = "load", "hung"


def _expected(counterexample: dict[str, Any]) -> str:
    """Return the kind of trouble that a counterexample was written for."""
    kind = str(counterexample["kind"])
    if kind in ("history", "traffic", "prompt"):
        return str(counterexample["trouble"]["kind"])
    if kind == "calls" and counterexample["expect"]["is"] == "returns":
        return _HANGING
    return kind


#: Where a rule holds by now.
_WHERE = {
    "history": "in this history",
    "check": "in its check",
    "calls": "in these calls",
    "traffic": "in this history",
    "prompt": "for this prompt",
}


def _read(path: Path) -> dict[str, Any]:
    """Read a case file, or the one beside a program."""
    if path.suffix == ".py":
        path = path.with_suffix(".json")
    try:
        case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        found = case["counterexample"]
        kinds = named(case["generation"]).cases
        complete = found["kind"] in kinds and kinds[found["kind"]] <= found.keys()
        if case["schema"] == 1 and complete and case["target"]:
            return case
    except FileNotFoundError:
        raise UsageError(f"there is no case file {path}.") from None
    except (ValueError, LookupError, TypeError, AttributeError):
        pass
    raise UsageError(f"{path} is no case file: give one from the cases folder of a report.")
