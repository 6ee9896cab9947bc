# SPDX-License-Identifier: Apache-2.0
"""Requests that do harm: what is said of them, and what is judged all the same."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from lines_plugin import PROFILE, Fault, specimen_of
from support import DEFECTIVE_IO, certify, gallery

from conformance.settings import Budget
from conformance.verdict import Verdict

if TYPE_CHECKING:
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


def test_a_descriptor_that_a_client_closes_is_told_with_its_place(
    zygote: Zygote, tmp_path: Path
) -> None:
    """The line that opens a number, which may be that of any socket; the process goes on."""
    name = "opens_what_a_number_names"
    specimen = next(found for found in gallery(DEFECTIVE_IO[0]) if found.name == name)
    source = Path(specimen.target.rpartition(":")[0]).read_text(encoding="utf-8")
    line = next(n for n, text in enumerate(source.splitlines(), 1) if "open(" in text)

    found = certify(zygote, specimen, tmp_path, rules={"IO-38"})["IO-38"]

    assert found.verdict is Verdict.FAIL, found.message
    assert "closes file descriptor 1," in str(found.message)
    assert f"open() at {name}.py:{line} " in str(found.message)


def test_the_last_line_of_a_process_that_ends_is_told(zygote: Zygote, tmp_path: Path) -> None:
    """Nothing else says why a process ended that raised nothing."""
    ends = (
        ENDS[0],
        "            __import__('os').system('echo no service >&2; kill -9 $PPID')\n",
    )
    found = _judged(zygote, tmp_path, Fault("IO-38", (ends,)), "IO-38")["IO-38"]

    assert found.verdict is Verdict.FAIL, found.message
    assert "ends the process (killed by SIGKILL, after it wrote 'no service')" in str(found.message)


def test_memory_is_what_all_of_a_request_needs(zygote: Zygote, tmp_path: Path) -> None:
    """The allocation that fails may be a small one: the limit is of all that is held."""
    name = "reserves_what_it_is_told"
    specimen = next(found for found in gallery(DEFECTIVE_IO[0]) if found.name == name)

    found = certify(zygote, specimen, tmp_path, rules={"IO-38"})["IO-38"]

    assert found.verdict is Verdict.FAIL, found.message
    assert "needs more than 2 GiB in all (" in str(found.message)
