# SPDX-License-Identifier: Apache-2.0
"""What a certification costs, against what nobody can avoid: paired runs, ratios, medians.

Run with ``./run bench``.
Absolute times mean nothing on a shared machine; the ratio of two runs in turn does.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from support import FIXTURES, ROOT, references

from conformance.engine.models import tiny_llama
from conformance.engine.server import Server

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_benchmark.fixture import BenchmarkFixture

pytestmark = pytest.mark.bench

TARGET = f"{FIXTURES / 'mended_example.py'}:DummyLogitsProcessor"
REFERENCE = ROOT / "reference_plugins" / "logits_batch" / "target_token.py"
SLOT_REFERENCE = ROOT / "reference_plugins" / "logits_slot" / "target_token.py"
MOST = 2.0

#: Each target, and how many times a bare import its certification in the simulator may take.
#: A step of slots costs several times a step of batches: every request has states of its own.
SIMULATED = {"batch": (TARGET, MOST), "slot": (str(SLOT_REFERENCE), 3.0)}


def _timed(command: list[str], folder: Path) -> float:
    started = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return time.perf_counter() - started


def _healthy_after(log: Path) -> float:
    """Return the seconds in which a server alone becomes healthy."""
    started = time.perf_counter()
    with Server.start(tiny_llama(), log=log) as server:
        server.wait_healthy()
        return time.perf_counter() - started


def _certify(target: str, evidence: str) -> list[str]:
    return [sys.executable, "-m", "pytest", "--plugin-path", target, "--evidence", evidence]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("target", "most"), SIMULATED.values(), ids=SIMULATED)
def test_simulator_against_a_bare_import(
    benchmark: BenchmarkFixture, tmp_path: Path, target: str, most: float
) -> None:
    """A whole simulator certification takes not much longer than a bare ``import vllm``."""
    baselines: list[float] = []
    ratios: list[float] = []
    _timed(_certify(target, "simulator"), tmp_path)  # warms the caches of vLLM

    def pair() -> None:
        baselines.append(_timed([sys.executable, "-c", "import vllm"], tmp_path))

    def certify() -> None:
        ratios.append(_timed(_certify(target, "simulator"), tmp_path) / baselines[-1])

    benchmark.pedantic(certify, setup=pair, rounds=5)
    benchmark.extra_info["ratio"] = statistics.median(ratios)
    benchmark.extra_info["import_seconds"] = statistics.median(baselines)

    assert statistics.median(ratios) <= most


@pytest.mark.timeout(900)
def test_all_evidence_against_a_server_alone(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """All evidence takes at most twice the time in which a server alone becomes healthy."""
    baselines: list[float] = []
    ratios: list[float] = []

    def pair() -> None:
        baselines.append(_healthy_after(tmp_path / "alone.log"))

    def certify() -> None:
        ratios.append(_timed(_certify(str(REFERENCE), "all"), tmp_path) / baselines[-1])

    benchmark.pedantic(certify, setup=pair, rounds=3)
    benchmark.extra_info["ratio"] = statistics.median(ratios)
    benchmark.extra_info["healthy_seconds"] = statistics.median(baselines)

    assert statistics.median(ratios) <= MOST


@pytest.mark.timeout(1800)
def test_a_certificate_among_many(benchmark: BenchmarkFixture, tmp_path: Path) -> None:
    """What all references share makes each certificate quicker than a server alone is healthy."""
    targets = references()
    healthy = statistics.median([_healthy_after(tmp_path / "alone.log") for _ in range(3)])
    command = [sys.executable, "-m", "conformance.cli", "certify", *targets, "--evidence", "all"]
    command += ["--conformance-report", str(tmp_path / "report")]

    seconds = benchmark.pedantic(_timed, args=(command, ROOT), rounds=1)
    certificates = len(list((tmp_path / "report").glob("*/certificate.json")))
    benchmark.extra_info["certificates"] = certificates
    benchmark.extra_info["ratio"] = seconds / certificates / healthy
    benchmark.extra_info["healthy_seconds"] = healthy

    assert certificates >= len(targets)
    assert benchmark.extra_info["ratio"] <= 1.0
