# SPDX-License-Identifier: Apache-2.0
"""The documented generation on a vLLM that still serves it: ``./run vllm028``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from old_hosts import LABELS, certified, failures, installed

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        installed() != (0, 28), reason="the installed vLLM is not 0.28: ./run vllm028 has it"
    ),
]


@pytest.mark.parametrize("generation", ["io/request", "io/data"])
def test_a_dual_class_serves_an_old_host(generation: str, tmp_path: Path) -> None:
    """The reference is conformant with all evidence, under both names of its methods."""
    status, certificate = certified(f"{LABELS}@{generation}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
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


@pytest.mark.parametrize("evidence", ["simulator", "simulator,offline"])
def test_an_old_constructor_keeps_an_engine_from_starting(evidence: str, tmp_path: Path) -> None:
    """What IO-03 warns of is what happens, and is told once: vLLM 0.17 to 0.28 do that."""
    (tmp_path / "takes_config_alone.py").write_text(SOURCE, encoding="utf-8")
    profile = LABELS.with_name("labels.conformance.toml")

    status, certificate = certified(
        "takes_config_alone.py@io/request",
        tmp_path,
        f"--evidence={evidence}",
        f"--plugin-profile={profile}",
    )

    assert status == ExitStatus.NON_CONFORMANT
    broken = failures(certificate)
    assert "IO-01" in broken
    assert "IO-03" not in broken
    assert "takes 2 positional arguments but 3 were given" in broken["IO-01"]
