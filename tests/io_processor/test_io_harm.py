# SPDX-License-Identifier: Apache-2.0
"""Requests that do harm: what is said of them, and what is judged all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lines_plugin import PROFILE, Fault, specimen_of
from support import certify

from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from pathlib import Path

    from conformance.verdict import RuleResult
    from conformance.worker import Zygote

#: It ends the process where a line is no text.
ENDS = (
    '            raise ValueError("a line must be a text that is not blank")\n',
    "            raise SystemExit(1)\n",
)

#: It keeps what it is given until the engine has worked for it.
KEEPS = (
    "        return list(prompt)\n",
    "        self.names[request_id] = list(prompt)\n        return list(prompt)\n",
)


def _judged(zygote: Zygote, folder: Path, fault: Fault, *rules: str) -> dict[str, RuleResult]:
    """Judge rules of a faulty plugin."""
    plugin = folder / "lines.py"
    plugin.write_text(fault.applied()[1], encoding="utf-8")
    specimen = specimen_of(plugin, fault.rule, PROFILE)
    return certify(zygote, specimen, folder, budget=Budget.QUICK, rules=set(rules))


def test_what_is_kept_shows_though_a_body_ends_the_process(zygote: Zygote, tmp_path: Path) -> None:
    """Requests that are only abandoned need nothing of bodies that are refused."""
    results = _judged(zygote, tmp_path, Fault("IO-36", (ENDS, KEEPS)), "IO-36", "IO-38")

    assert results["IO-38"].verdict is Verdict.FAIL, results["IO-38"].message
    assert results["IO-36"].verdict is Verdict.FAIL, results["IO-36"].message
    assert "abandoned requests" in str(results["IO-36"].message)


def test_what_refused_requests_leave_waits_for_those_that_do_harm(
    zygote: Zygote, tmp_path: Path
) -> None:
    """What ends the process is not sent to the one in which everything else is judged."""
    results = _judged(zygote, tmp_path, Fault("IO-38", (ENDS,)), "IO-36", "IO-38")

    assert results["IO-38"].verdict is Verdict.FAIL, results["IO-38"].message
    assert results["IO-36"].verdict is Verdict.NOT_VERIFIED, results["IO-36"].message
    assert "IO-38" in str(results["IO-36"].message)
