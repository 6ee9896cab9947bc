# SPDX-License-Identifier: Apache-2.0
"""Multi-modal processors on a vLLM that calls them in another way: ``./run vllm028``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from old_hosts import installed
from support import ROOT
from user import CLI, run

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    installed() != (0, 28), reason="the installed vLLM is not 0.28: ./run vllm028 has it"
)

REFERENCES = ROOT / "reference_plugins"


def test_a_processor_that_cannot_be_judged_keeps_no_other_plugin_from_it(tmp_path: Path) -> None:
    """One sentence says since which release processors are judged; the others are judged."""
    targets = [str(REFERENCES / path) for path in ("tiny_vlm/model.py", "parser/thinking.py")]
    options = ("--budget", "quick", "--conformance-report", "report")
    status, said = run(*CLI, "certify", *targets, *options, folder=tmp_path)

    assert status == ExitStatus.INCOMPLETE, said
    paths = tmp_path.glob("report/*/certificate.json")
    documents = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    found = {each["plugin"]["generation"]: each for each in documents}
    assert found["parser/reasoning"]["verdict"] == "conformant"
    processor = found["mm/processor"]
    assert {rule["verdict"] for rule in processor["rules"]} == {"not-verified"}
    assert "are certified as vLLM 0.31 and later calls them" in processor["rules"][0]["message"]
