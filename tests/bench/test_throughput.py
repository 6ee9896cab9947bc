# SPDX-License-Identifier: Apache-2.0
"""What a slow plugin does to engines and servers is found, and said in the right figures.

Run with ``./run bench tests/bench/test_throughput.py``.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from support import ROOT

from conformance.cli import main

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.bench, pytest.mark.engine, pytest.mark.server, pytest.mark.timeout(900)
]  # fmt: skip

LOGITS = """\
import time

from vllm.v1.sample.logits_processor import LogitsProcessor


class Slow(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass
        logits[:, 3] += 1.0
        return logits
"""

HOOK = """\
import asyncio


class Slow:
    name = "slow"
    blocking = False
    timeout_ms = 5000

    async def score(self, ctx):
        await asyncio.sleep(0.3)
        return {"slow": True}
"""

IO = """\
import time

from reference_plugins.io_processor.labels import LineLabels


class Slow(LineLabels):
    def pre_process(self, prompt, request_id=None, **kwargs):
        time.sleep(0.1)
        return super().pre_process(prompt, request_id, **kwargs)
"""


def _measured(tmp_path: Path, source: str, *options: str) -> dict[tuple[str, str], Any]:
    """Measure a plugin and return its throughput by place and figure."""
    plugin = tmp_path / "slow_plugin.py"
    plugin.write_text(source, encoding="utf-8")
    arguments = ["bench", f"{plugin}:Slow", "--budget", "quick", "--json", *options]
    report = ["--conformance-report", str(tmp_path / "report")]
    done = CliRunner().invoke(main, [*arguments, *report])
    assert done.exit_code == 0, done.output
    (document,) = json.loads(done.stdout)
    return {(found["where"], found["figure"]): found for found in document["throughput"]}


def test_a_slow_logits_processor_slows_every_token(tmp_path: Path) -> None:
    """By about the ten milliseconds of a step, of which eight requests get a token each."""
    found = _measured(tmp_path, LOGITS, "--measure", "offline,server")
    for where in ("offline", "server"):
        for figure in ("seconds per token", "processor seconds per token"):
            measured = found[where, figure]
            assert measured["measurable"], measured
            assert 0.0005 < measured["added_seconds"][1] < 0.01, measured


def test_a_slow_hook_delays_answers_and_uses_no_processor(tmp_path: Path) -> None:
    """Answers come by the 0.3 s later that it sleeps, and the processor has no more to do."""
    found = _measured(tmp_path, HOOK)
    latency = found["server", "latency"]
    assert latency["measurable"], latency
    assert 0.2 < latency["added_seconds"][1] < 0.6, latency
    processor = found["server", "processor seconds per token"]
    assert processor["overhead"][1] < latency["overhead"][1] / 4, processor


def test_a_slow_io_processor_delays_requests(tmp_path: Path) -> None:
    """By the 0.1 s and more that it holds a thread of the server."""
    profile = ROOT / "reference_plugins" / "io_processor" / "labels.conformance.toml"
    found = _measured(tmp_path, IO, "--plugin-profile", str(profile))
    latency = found["server", "latency"]
    assert latency["measurable"], latency
    assert latency["added_seconds"][1] > 0.08, latency
