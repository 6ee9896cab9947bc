# SPDX-License-Identifier: Apache-2.0
"""``vllm-conformance matrix``, as a user types it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from support import ROOT, needs_uv
from user import CLI, run

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from pathlib import Path

SWAPS = "ignores_one_sided_swap"


@needs_uv
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_releases_are_in_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A release that cannot be installed, and a target that is not there, keep no other away."""
    monkeypatch.setenv("UV_OFFLINE", "1")
    source = ROOT / "fixtures" / "defective" / "logits_batch" / f"{SWAPS}.py"
    (tmp_path / source.name).write_bytes(source.read_bytes())

    status, output = run(
        *CLI,
        "matrix",
        f"--vllm={sys.prefix},0.0.1",
        source.name,
        "nothing.py",
        "--budget=quick",
        "--environments=environments",
        "--jobs=2",
        folder=tmp_path,
    )

    assert status == ExitStatus.NON_CONFORMANT, output
    folder = tmp_path / "reports" / "local" / "matrix"
    matrix = json.loads((folder / "matrix.json").read_text(encoding="utf-8"))
    [row, missing] = matrix["rows"]
    assert "LB-08" in row["cells"][sys.prefix]["failed"], output
    assert (folder / row["cells"][sys.prefix]["certificate"]).is_file()
    assert "there is no file nothing.py" in missing["cells"][sys.prefix]["reason"]
    for each in (row, missing):
        assert "uv could not install it: Because" in each["cells"]["0.0.1"]["reason"]
    assert "0.0.1: installing; the first time takes minutes" in output
    assert "✗" in (folder / "matrix.md").read_text(encoding="utf-8")


def test_a_mistake_is_one_sentence(tmp_path: Path) -> None:
    """What is no release is said before anything is started."""
    status, output = run(*CLI, "matrix", "--vllm=newest", "x.py", folder=tmp_path)

    assert status == ExitStatus.USAGE
    assert output == (
        "vllm-conformance: --vllm 'newest' is neither a release, such as 0.32 or 0.31.0, nor the "
        "folder of an environment with one.\n"
    )
