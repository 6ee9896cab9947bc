# SPDX-License-Identifier: Apache-2.0
"""On a machine with a GPU the simulator takes the CPU, also where engines are compared with it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from specimens import slot_references
from support import DEFECTIVE, certify, gallery

from conformance.rules import Evidence
from conformance.running import trials, zygotes
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support import Specimen

    from conformance.plugin.target import Plugin
    from conformance.worker import Zygote

PATH = [str(Path(__file__).parent)]
LIVE = (Evidence.SIMULATOR, Evidence.OFFLINE)


@pytest.fixture
def on_a_gpu() -> Iterator[Zygote]:
    """Return a process that says that vLLM takes another device than the CPU in it."""
    with contextlib.closing(zygotes.start_zygote()) as zygote:
        zygote.wait_ready()
        assert zygote.on_cpu
        zygote.on_cpu = False
        yield zygote


@pytest.fixture
def simulators(monkeypatch: pytest.MonkeyPatch) -> list[Zygote]:
    """Return the processes that are started to simulate."""
    started: list[Zygote] = []

    def start(*, simulates: bool) -> Zygote:
        started.append(zygotes.start_zygote(simulates=simulates))
        return started[-1]

    monkeypatch.setattr(trials, "start_zygote", start)
    return started


def test_what_simulates_knows_no_device(tmp_path: Path) -> None:
    """Neither vLLM nor torch has another one than the CPU there."""
    with contextlib.closing(zygotes.start_zygote(simulates=True)) as zygote:
        log = tmp_path / "job.log"
        job = zygote.fork("platform_job:taken", {}, log=log, directory=tmp_path, python_path=PATH)
        assert job.ask(None, limit=60) == ("cpu", False)
        job.close()


@pytest.mark.engine
@pytest.mark.parametrize("specimen", slot_references()[:1], ids=lambda each: each.name)
def test_a_reference_is_judged_there(
    on_a_gpu: Zygote, simulators: list[Zygote], specimen: Specimen, tmp_path: Path
) -> None:
    """One process simulates for all kinds of evidence, and every rule is judged as elsewhere."""
    results = certify(on_a_gpu, specimen, tmp_path, evidence=LIVE)

    assert len(simulators) == 1
    assert {result.verdict for result in results.values()} <= {
        Verdict.PASS,
        Verdict.NOT_APPLICABLE,
    }
    assert (next((tmp_path / "report").iterdir()) / "errands.log").is_file()


@pytest.mark.engine
def test_it_ends_with_the_plugin(
    on_a_gpu: Zygote, simulators: list[Zygote], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What simulates for a plugin does not outlive its live trials."""
    ended: list[str] = []
    leave = trials.Trials.leave_elsewhere

    def noted(self: trials.Trials, plugin: Plugin) -> None:
        job, _ = self._errands[plugin.target]
        leave(self, plugin)
        job.close()  # waits for its end
        ended.append(plugin.target)

    monkeypatch.setattr(trials.Trials, "leave_elsewhere", noted)
    specimen = slot_references()[0]
    certify(on_a_gpu, specimen, tmp_path, evidence=(Evidence.OFFLINE,), rules={"LS-01", "LS-35"})

    assert len(simulators) == 1
    assert ended == [f"{specimen.target}@logits/slot"]


@pytest.mark.engine
def test_a_defective_plugin_fails_there(
    on_a_gpu: Zygote, simulators: list[Zygote], tmp_path: Path
) -> None:
    """What a simulator finds out for an engine's trial leads to the same failure."""
    specimen = next(
        each for each in gallery(DEFECTIVE) if each.name == "takes_vocabulary_size_for_token"
    )
    results = certify(
        on_a_gpu, specimen, tmp_path, evidence=(Evidence.OFFLINE,), rules={"LB-38", "LB-01"}
    )

    assert len(simulators) == 1
    assert results["LB-38"].verdict is Verdict.FAIL
