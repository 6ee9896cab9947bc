# SPDX-License-Identifier: Apache-2.0
"""Batch logits processors on an older vLLM: ``./run vllm028``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from old_hosts import certified, failures, installed
from support import ROOT

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(
        installed() != (0, 28), reason="the installed vLLM is not 0.28: ./run vllm028 has it"
    ),
]


def test_a_reference_is_conformant_on_an_old_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its batch is made of other arguments, and it compiles what chooses a token.

    A compilation that nobody has made before takes longer than all examples may.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "compiled"))

    target = str(ROOT / "reference_plugins" / "logits_batch" / "target_token.py")
    status, certificate = certified(target, tmp_path, "--evidence=simulator,offline")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    assert certificate["environment"]["vllm"].startswith("0.28")


def test_an_interface_that_an_old_host_lacks_is_no_fault_of_a_plugin(tmp_path: Path) -> None:
    """Nobody can load it there, and it may be right where it can be."""
    target = str(ROOT / "reference_plugins" / "logits_slot" / "target_token.py")
    status, certificate = certified(target, tmp_path)

    assert status == ExitStatus.INCOMPLETE, failures(certificate)
    (loading,) = [rule for rule in certificate["rules"] if rule["id"] == "LS-01"]
    assert "install vLLM 0.31 or later; before, there is no Slot logits" in loading["message"]
