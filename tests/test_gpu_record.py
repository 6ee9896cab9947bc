# SPDX-License-Identifier: Apache-2.0
"""What was seen on a GPU is kept as data, and drawn as a page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gpu_record
from support import ROOT

from conformance.plugin.files import digest_of

if TYPE_CHECKING:
    from pathlib import Path

HOST: dict[str, Any] = {"verdict": "conformant", "counts": {"pass": 3}}
SOURCE = "reference_plugins/logits_batch/target_token.py"


def _certificate(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - any field
    rules = [
        ("LB-01", "pass", None),
        ("LB-06", "not-verified", "w"),
        ("LB-05", "not-verified", "w"),
    ]
    return {
        "interrupted": False,
        "environment": {
            "device": "cuda",
            "vllm": "1",
            "torch": "2",
            "python": "3",
            "host_cuda_graphs": "on",
        },
        "run": {
            "evidence": ["offline"],
            "budget": "quick",
            "seconds": 12.3,
            "finished": "2026-01-02T03:04:05Z",
        },
        "plugin": {
            "target": f"{SOURCE}:Target",
            "generation": "logits/batch",
            "source": SOURCE,
            "digest": digest_of(str(ROOT / SOURCE)),
        },
        "verdict": "incomplete",
        "rules": [{"id": id_, "verdict": said, "message": why} for id_, said, why in rules],
        **changes,
    }


def _collected(folder: Path, *certificates: dict[str, Any]) -> list[dict[str, Any]]:
    for number, certificate in enumerate(certificates):
        (folder / str(number)).mkdir()
        (folder / str(number) / "certificate.json").write_text(json.dumps(certificate))
    nothing: dict[str, Any] = {"runs": [], "host": []}
    runs: list[dict[str, Any]] = gpu_record.collect([folder], nothing)["runs"]
    return runs


def test_the_page_is_drawn_from_the_data() -> None:
    """Whoever changes one of them changes the other."""
    data = json.loads(gpu_record.DATA.read_text("utf-8"))

    assert gpu_record.PAGE.read_text("utf-8") == gpu_record.page(data)


def test_a_run_is_a_row(tmp_path: Path) -> None:
    """Rules that were not verified are named once for each reason."""
    (run,) = _collected(tmp_path, _certificate())
    page = gpu_record.page({"runs": [run], "host": []})

    assert "| incomplete | 2 not-verified, 1 pass | offline | yes | 12 | 2026-01-02 |" in page
    assert "LB-05, LB-06: w\n" in page


def test_the_last_run_of_this_source_counts(tmp_path: Path) -> None:
    """Neither one that was interrupted, of another source or of a CPU, nor an earlier one."""
    another = {**_certificate()["plugin"], "digest": "sha256:0"}
    on_cpu = {**_certificate()["environment"], "device": "cpu"}
    earlier = {**_certificate()["run"], "finished": "2025-01-01T00:00:00Z"}
    (run,) = _collected(
        tmp_path,
        _certificate(),
        _certificate(run=earlier, verdict="conformant"),
        _certificate(interrupted=True, verdict="conformant"),
        _certificate(plugin=another, verdict="conformant"),
        _certificate(environment=on_cpu, verdict="conformant"),
    )

    assert run["verdict"] == "incomplete"


def test_earlier_runs_of_the_same_source_are_kept(tmp_path: Path) -> None:
    """A run of some plugins takes nothing from the record of others."""
    (run,) = _collected(tmp_path, _certificate())
    changed = {**run, "plugin": "another", "digest": "sha256:0"}
    nothing_new = tmp_path / "nothing"
    nothing_new.mkdir()

    again = gpu_record.collect([nothing_new], {"runs": [run, changed], "host": [HOST]})

    assert again == {"runs": [run], "host": [HOST]}
