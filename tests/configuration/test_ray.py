# SPDX-License-Identifier: Apache-2.0
"""A server that Ray runs on one of two nodes, certified by its address."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from support import ROOT

from conformance.engine.models import tiny_llama
from conformance.running.runner import Certification
from conformance.settings import Device, Settings, parse_evidence
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conformance.worker import Zygote

NAME = "reference_plugins.logits_batch.target_token:TargetTokenLogitsProcessor"
TARGET = "reference_plugins/logits_batch/target_token.py"
PROGRAM = Path(__file__).with_name("ray_cluster.py")

pytestmark = [
    pytest.mark.server,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        importlib.util.find_spec("ray") is None, reason="ray is not installed: pip install ray"
    ),
]


@contextmanager
def _cluster(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the program; in the end nothing that it started is there any more."""
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    program = subprocess.Popen(
        [sys.executable, str(PROGRAM), str(tiny_llama()), NAME, str(folder / "server.log")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield program
    finally:
        program.terminate()
        program.wait(120)
        assert program.stdout is not None
        program.stdout.close()


def _of_program(program: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(program.pid).children(recursive=True)


def _left(processes: list[psutil.Process]) -> list[str]:
    """Return those that are still there after a while."""
    _, alive = psutil.wait_procs(processes, timeout=40)
    return [f"{each.pid} {each.name()}" for each in alive]


def test_a_server_of_a_cluster_is_certified(zygote: Zygote, tmp_path: Path) -> None:
    """Two nodes are up, the server is on the second, and the rules of a server hold there."""
    with _cluster(tmp_path) as program:
        assert program.stdout is not None
        nodes, where, url = program.stdout.readline().split()
        started = _of_program(program)
        settings = Settings(
            targets=(TARGET,),
            evidence=parse_evidence("server"),
            server_url=url,
            device=Device.CPU,
            report=tmp_path,
            directory=ROOT,
        )
        with Certification(settings, zygote=zygote) as certification:
            certification.load()
            results = [certification.run(check) for check in certification.checks()]

    verdicts = {result.verdict for result in results}
    assert (nodes, where) == ("2", "another")
    assert Verdict.PASS in verdicts
    assert not verdicts & {Verdict.FAIL, Verdict.ERROR}
    assert _left(started) == []


@pytest.mark.parametrize("seconds", [4.0, 14.0, 30.0])
def test_an_interrupted_cluster_leaves_nothing(tmp_path: Path, seconds: float) -> None:
    """At Ctrl-C, early or late, no node, no actor and no server stays."""
    with _cluster(tmp_path) as program:
        time.sleep(seconds)
        started = _of_program(program)
        program.send_signal(signal.SIGINT)
        program.wait(120)

    assert started
    assert _left(started) == []
