# SPDX-License-Identifier: Apache-2.0
"""Two reports compared: what counts as a difference, and what does not."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import compare_certificates
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DOCUMENT: dict[str, Any] = {
    "verdict": "conformant",
    "run": {"seconds": 12.5},
    "rules": [
        {"id": "LB-01", "verdict": "pass", "evidence": ["simulator", "server"], "examples": 3},
        {"id": "LB-02", "verdict": "not-applicable", "evidence": ["simulator"], "examples": 0},
    ],
}


def _write(folder: Path, document: dict[str, Any], name: str = "a.py-Plugin") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "certificate.json").write_text(json.dumps(document), encoding="utf-8")


@pytest.fixture
def compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """Return a function that compares a certificate with what became of it."""

    def compared(after: dict[str, Any], name: str = "a.py-Plugin") -> tuple[int, str]:
        _write(tmp_path / "before", DOCUMENT)
        _write(tmp_path / "after", after, name)
        status = compare_certificates.main([str(tmp_path / "before"), str(tmp_path / "after")])
        return status, capsys.readouterr().out

    return compared


def test_times_and_counts_are_no_difference(compared: Callable[..., tuple[int, str]]) -> None:
    """They depend on the machine."""
    after = copy.deepcopy(DOCUMENT)
    after["run"]["seconds"], after["rules"][0]["examples"] = 3.0, 4

    assert compared(after) == (0, "1 certificates, 2 rules: the same\n")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            lambda new: new.update(verdict="incomplete"),
            "a.py-Plugin: certificate: conformant before, incomplete after",
        ),
        (
            lambda new: new["rules"][0].update(verdict="fail"),
            "a.py-Plugin: LB-01: pass (simulator, server) before, fail (simulator, server) after",
        ),
        (
            lambda new: new["rules"][0].update(evidence=["simulator"]),
            "a.py-Plugin: LB-01: pass (simulator, server) before, pass (simulator) after",
        ),
        (
            lambda new: new["rules"].pop(),
            "a.py-Plugin: LB-02: not-applicable (simulator) before, nothing after",
        ),
    ],
    ids=["certificate", "verdict", "evidence", "rule"],
)
def test_what_differs_is_told(
    compared: Callable[..., tuple[int, str]], change: Callable[[dict[str, Any]], object], line: str
) -> None:
    """A verdict, what shows it, and a rule that is lost have a line each."""
    after = copy.deepcopy(DOCUMENT)
    change(after)
    status, said = compared(after)

    assert status == 1
    assert said.splitlines()[0] == line
    assert len(said.splitlines()) == 2


def test_a_plugin_without_its_certificate_is_told(
    compared: Callable[..., tuple[int, str]],
) -> None:
    """Whichever side has it."""
    status, said = compared(DOCUMENT, "b.py-Other")

    assert status == 1
    assert "a.py-Plugin: certificate: conformant before, nothing after" in said
    assert "b.py-Other: certificate: nothing before, conformant after" in said


def test_an_empty_folder_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing compared with nothing is not the same."""
    status = compare_certificates.main([str(tmp_path), str(tmp_path)])

    assert status == 4
    assert capsys.readouterr().err == f"there is no certificate below {tmp_path}\n"
