# SPDX-License-Identifier: Apache-2.0
"""A release of vLLM that is newer than this harness: what runs is shown, and nobody is blamed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from support import ROOT
from user import CLI, certificates, run, verdicts

if TYPE_CHECKING:
    from pathlib import Path

#: Hides what simulators of batches are made of, as a release does that has moved it.
MOVED = """
import sys

class Moved:
    def find_spec(self, name, path=None, target=None):
        if name == "vllm.v1.worker.gpu_input_batch":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Moved())
"""

REFERENCES = ROOT / "reference_plugins"


@pytest.fixture
def moved(tmp_path: Path) -> Path:
    """Return a folder that hides a module of vLLM from processes that have it on their path."""
    folder = tmp_path / "site"
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(MOVED, encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    "target",
    [
        "logits_batch/target_token.py",
        "logits_batch/target_token.py:TargetTokenLogitsProcessor",
        "logits_slot/target_token.py",
    ],
)
def test_a_family_without_its_host_is_not_verified(
    moved: Path, tmp_path: Path, target: str
) -> None:
    """One sentence says what of vLLM is not there; the plugin has failed nothing."""
    path = str(REFERENCES / target)
    status, said = run(*CLI, "certify", path, folder=tmp_path, paths=(moved, ROOT))
    (document,) = certificates(tmp_path).values()

    assert status == 2, said
    assert document["plugin"]["generation"].replace("/", "_") == target.partition("/")[0]
    assert set(verdicts(document).values()) == {"not-verified"}
    sentence = document["rules"][0]["message"]
    assert "is not known here, where " in sentence
    assert "No module named 'vllm.v1.worker.gpu_input_batch'" in sentence
    assert "Traceback" not in said


def test_other_families_are_judged_all_the_same(moved: Path, tmp_path: Path) -> None:
    """What they need is where it was."""
    path = REFERENCES / "parser" / "thinking.py"
    status, said = run(
        *CLI, "certify", str(path), "--budget", "quick", folder=tmp_path, paths=(moved, ROOT)
    )

    assert status == 0, said


#: Says of some releases whether an error of the harness is explained by them.
RELEASES = """
import json, sys
import vllm
from conformance.worker import hindrances

said = {}
for vllm.__version__ in sys.argv[1:]:
    said[vllm.__version__] = hindrances.unknown_release(AttributeError("moved"))
print(json.dumps(said))
"""


def test_what_goes_wrong_on_a_newer_release_is_no_fault_of_the_harness() -> None:
    """On those that it knows it is."""
    known = ("0.28.1", "0.32.0+cpu", "0.33.1")
    newer = ("0.34.0", "0.40.0rc1.dev12+gabc", "1.0.0", "dev")
    done = subprocess.run(
        [sys.executable, "-c", RELEASES, *known, *newer],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    said = json.loads(done.stdout.splitlines()[-1])

    assert [said[release] for release in known] == [None] * len(known)
    assert said["0.34.0"] == (
        "vLLM 0.34.0 is not known here, where 0.33 is the newest that is: AttributeError: moved"
    )
    assert all(said[release] for release in newer)
