# SPDX-License-Identifier: Apache-2.0
"""A vLLM that is newer than this harness, or not whole: what runs is shown, nobody is blamed."""

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

#: Gives a module of vLLM to import what does not fit, as packages do that were not made together.
MISFIT = """
import sys
from importlib.util import spec_from_file_location
from pathlib import Path

class Asks:
    def find_spec(self, name, path=None, target=None):
        if name == "vllm.v1.worker.gpu.model_runner":
            return spec_from_file_location(name, Path(__file__).with_name("asks.py"))

sys.meta_path.insert(0, Asks())
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


def test_packages_that_do_not_fit_are_nobodys_fault(tmp_path: Path) -> None:
    """One sentence says what cannot be imported, and with what that is shown."""
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(MISFIT, encoding="utf-8")
    (site / "asks.py").write_text("import newer_kernels\n", encoding="utf-8")
    raising = "raise AttributeError(\"module 'runtime' has no attribute 'library'\")\n"
    (site / "newer_kernels.py").write_text(raising, encoding="utf-8")
    path = str(REFERENCES / "logits_slot" / "target_token.py")
    status, said = run(*CLI, "certify", path, folder=tmp_path, paths=(site, ROOT))
    (document,) = certificates(tmp_path).values()

    assert status == 2, said
    assert set(verdicts(document).values()) == {"not-verified"}
    assert document["rules"][0]["message"] == (
        "AttributeError: module 'runtime' has no attribute 'library': vllm itself cannot be "
        "imported here (python -c 'import vllm.v1.worker.gpu.model_runner' shows it): install "
        "releases of newer_kernels and of what it needs that fit each other"
    )


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
