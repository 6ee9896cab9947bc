# SPDX-License-Identifier: Apache-2.0
"""Playing a saved counterexample again."""

from __future__ import annotations

import json
import tempfile
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from conformance.runner import Certification
from conformance.settings import Settings, UsageError
from conformance.worker import JobDied, JobHung

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    settings = Settings(targets=(case["target"],), python_path=tuple(python_path))
    with (
        tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder,
        Certification(settings) as certification,
    ):
        certification.start()
        (plugin, *_) = certification.load()
        job = certification.fork_replay(plugin, case, Path(folder))
        try:
            kinds, message = job.ask("replay", limit=120)
        except (JobDied, JobHung) as error:
            kinds, message = [case["counterexample"]["trouble"]["kind"]], str(error)
    expected = case["counterexample"]["trouble"]["kind"]
    if not kinds:
        return Outcome.FIXED, f"{case['rule']} holds in this history now"
    if expected in kinds:
        return Outcome.STILL_FAILS, f"{case['rule']}: {message}"
    return Outcome.CHANGED, f"{case['rule']} failed otherwise before; now: {message}"


def _read(path: Path) -> dict[str, Any]:
    try:
        case: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if case["schema"] == 1 and case["counterexample"]["kind"] == "history":
            return case
    except FileNotFoundError:
        raise UsageError(f"there is no case file {path}.") from None
    except (ValueError, KeyError, TypeError):
        pass
    raise UsageError(f"{path} is no case file: give one from the cases folder of a report.")
