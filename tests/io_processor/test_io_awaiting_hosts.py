# SPDX-License-Identifier: Apache-2.0
"""Awaited hooks on a vLLM that awaits them: ``./run vllm019``."""

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
        installed() != (0, 19), reason="the installed vLLM is not 0.19: ./run vllm019 has it"
    ),
]

#: Labels lines, and counts on outputs to arrive in the order of the lines.
SOURCE = """\
from reference_plugins.io_processor.labels import LineLabels


class LabelsByArrival(LineLabels):
    async def post_process_async(self, model_output, request_id=None, **kwargs):
        outputs = [output async for _, output in model_output]
        return self.post_process(outputs, request_id)
"""

#: The first line is by far the longest: its output comes last where prompts share steps.
PROFILE = """\
[io-processor]
model = "tiny-classification"
valid = [
  { lines = ["one line"] },
  { lines = ["a line that is by far the longest of all the lines, and then some", "b", "c"] },
]
invalid = [ {} ]
"""


@pytest.mark.parametrize("generation", ["io/request", "io/data"])
def test_the_reference_serves_a_host_that_awaits(generation: str, tmp_path: Path) -> None:
    """It is conformant with all evidence, outputs that arrive out of order among it."""
    status, certificate = certified(f"{LABELS}@{generation}", tmp_path, "--evidence", "all")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    assert certificate["environment"]["vllm"].startswith("0.19")
    shown = {rule["id"]: rule["evidence"] for rule in certificate["rules"]}
    assert shown["IO-17"] == ["simulator", "server"]


def test_a_live_server_shows_that_order_was_counted_on(tmp_path: Path) -> None:
    """Outputs really arrive in another order, and a plugin that does not sort them fails."""
    (tmp_path / "labels_by_arrival.py").write_text(SOURCE, encoding="utf-8")
    (tmp_path / "profile.toml").write_text(PROFILE, encoding="utf-8")

    status, certificate = certified(
        "labels_by_arrival.py@io/request",
        tmp_path,
        "--evidence=server",
        "--plugin-profile=profile.toml",
    )

    assert status == ExitStatus.NON_CONFORMANT
    assert failures(certificate).keys() == {"IO-17"}
    # Which of the servers shows it first is chance.
    assert "a line that is by far the longest" in failures(certificate)["IO-17"]
