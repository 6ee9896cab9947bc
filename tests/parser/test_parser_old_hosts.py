# SPDX-License-Identifier: Apache-2.0
"""Parsers on a vLLM that has what they import elsewhere: ``./run vllm028``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from old_hosts import certified, failures, installed
from specimens import REFERENCE_PARSER

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    installed() != (0, 28), reason="the installed vLLM is not 0.28: ./run vllm028 has it"
)


@pytest.mark.parametrize("file", ["tagged_calls.py", "thinking.py"])
def test_a_reference_is_conformant_on_an_old_host(file: str, tmp_path: Path) -> None:
    """The host's own signatures have moved, and nothing of that is the plugin's fault."""
    status, certificate = certified(str(REFERENCE_PARSER / file), tmp_path, "--budget=quick")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    assert certificate["environment"]["vllm"].startswith("0.28")
    shown = {rule["id"]: rule["verdict"] for rule in certificate["rules"]}
    # What a model says without a marker is its reasoning, to the one that reads it; its own
    # markers it leaves to the options of vLLM.
    others = {rule for rule, verdict in shown.items() if verdict != "pass"}
    assert others == ({"RP-20", "RP-22"} if file == "thinking.py" else set())
