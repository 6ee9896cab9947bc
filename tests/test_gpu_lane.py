# SPDX-License-Identifier: Apache-2.0
"""The GPU lane, as far as it runs without a GPU: what it skips, and which commands it gives."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support import ROOT, references

if TYPE_CHECKING:
    from collections.abc import Sequence

NVIDIA = Path("/dev/nvidiactl")  #: there where a GPU is
GPU = "GPU 0: NVIDIA H200 (UUID: GPU-0)"

#: What the lane may call.
PROGRAMS = "cat dirname grep mktemp rm sed sort tail".split()  # noqa: SIM905 - one line

#: Writes its arguments down and fails where they are those of a benchmark.
PYTHON = """\
#!/bin/sh
[ "$1" = -c ] && exit 0
echo "graphs=$VLLM_CONFORMANCE_CUDA_GRAPHS $*" >>"$CALLS"
case "$*" in *bench*) exit 2 ;; esac
"""


#: What the lane is called with, where nothing else is said.
TARGETS = ("one.py", "two_logits.py")


def lane(
    folder: Path, smi: str | None, *, targets: Sequence[str] = TARGETS, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the lane for plugins, with an ``nvidia-smi`` that prints a line, or none."""
    programs = folder / "bin"
    programs.mkdir()
    for name in PROGRAMS:
        (programs / name).symlink_to(str(shutil.which(name)))
    if smi is not None:
        executable(programs / "nvidia-smi", f"#!/bin/sh\necho '{smi}'\n")
    executable(programs / "nproc", "#!/bin/sh\necho 16\n")
    return subprocess.run(
        [str(ROOT / ".ci" / "gpu"), *targets],
        env={"PATH": str(programs), **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def executable(path: Path, text: str) -> Path:
    """Write a program."""
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("smi", [None, "No devices were found"])
def test_without_a_gpu_it_says_so_and_succeeds(tmp_path: Path, smi: str | None) -> None:
    """One sentence with the reason, and nothing is installed or run."""
    done = lane(tmp_path, smi, GPU_PYTHON="/nowhere/python")

    assert done.returncode == 0
    assert done.stdout.startswith("skipped: no CUDA GPU on this machine (nvidia-smi ")
    assert done.stderr == ""


@pytest.mark.slow  # imports torch
@pytest.mark.skipif(NVIDIA.exists(), reason="there is a GPU")
def test_a_torch_that_cannot_use_the_gpu_is_told(tmp_path: Path) -> None:
    """The harness could not do its work: status 3, and which interpreter it is about."""
    done = lane(tmp_path, GPU, GPU_PYTHON=sys.executable)

    assert done.returncode == 3
    assert done.stderr.endswith(f"torch in {sys.executable} cannot use it\n")


CLI = "-m conformance.cli"
TESTS = "-m pytest tests -m gpu --numprocesses 4"
QUICK_TESTS = "-m pytest tests -m gpu and not engine --numprocesses 4"


def steps(folder: Path, budget: str, targets: Sequence[str] = TARGETS) -> tuple[int, list[str]]:
    """Return the exit status of the lane, and its commands; those of one step in any order."""
    python = executable(folder / "python", PYTHON)
    calls = folder / "calls"
    options = {"GPU_REPORT": "there", "GPU_BUDGET": budget, "CALLS": str(calls)}
    done = lane(folder, GPU, targets=targets, GPU_PYTHON=str(python), **options)
    given = calls.read_text().splitlines()
    asked = [line.removeprefix("graphs= ") for line in given]
    assert all(f"gpu: {python} {line.removeprefix('graphs=1 ')}" in done.stderr for line in asked)
    return done.returncode, asked


def test_every_step_is_taken_and_the_worst_status_stands(tmp_path: Path) -> None:
    """Tests, certificates eager and with graphs, the host, and benchmarks of each interface."""
    status, asked = steps(tmp_path, "standard")
    rest = "--device cuda --budget standard"
    eager, graphs = "--conformance-report there/eager", "--conformance-report there/graphs"
    bench = [
        f"{CLI} bench reference_plugins/{generation}/target_token.py {how} {rest}"
        for generation in ("logits_batch", "logits_slot")
        for how in (
            f"--measure all {eager}",
            f"--measure offline,server --cuda-graphs {graphs}",
        )
    ]
    bench += [
        f"{CLI} bench reference_plugins/{name} {eager} {rest}"
        for name in (
            "io_processor/long_document.py",
            "classifier_hook/hooks/annotator.py",
            "tiny_vlm/model.py",
            "modality/images.py:ImagePlugin",
        )
    ]

    assert status == 2
    assert sorted(asked[:2]) == [
        f"{CLI} certify one.py two_logits.py --evidence all {eager} {rest}",
        TESTS,
    ]
    assert sorted(asked[2:4]) == [
        f"{CLI} host --conformance-report there/host",
        f"graphs=1 {CLI} certify one.py two_logits.py --evidence offline,server {graphs} {rest}",
    ]
    assert asked[4:] == bench


def test_a_quick_lane_leaves_out_what_takes_long(tmp_path: Path) -> None:
    """The simulator, which takes no GPU, graphs of others than logits processors, throughput."""
    status, asked = steps(tmp_path, "quick")
    rest, graphs = "--device cuda --budget quick", "--conformance-report there/graphs"
    live, eager = "--evidence offline,server", "--conformance-report there/eager"

    assert status == 2
    assert sorted(asked[:4]) == [
        f"{CLI} certify one.py two_logits.py {live} {eager} {rest}",
        f"{CLI} host --conformance-report there/host",
        QUICK_TESTS,
        f"graphs=1 {CLI} certify two_logits.py {live} {graphs} {rest}",
    ]
    assert asked[4:] == [
        *(
            f"{CLI} bench reference_plugins/{name}/target_token.py --measure steps {eager} {rest}"
            for name in ("logits_batch", "logits_slot")
        ),
    ]


@pytest.mark.parametrize(("budget", "which"), [("standard", "targets"), ("quick", "quick")])
def test_without_targets_reference_plugins_are_certified(
    tmp_path: Path, budget: str, which: str
) -> None:
    """Quickly, some of each folder of them."""
    _, asked = steps(tmp_path, budget, targets=())
    [eager] = [line for line in asked if "there/eager" in line and "certify" in line]
    given = eager.partition("certify ")[2].partition(" --evidence")[0].split()

    assert given == references(which)
    folders = {each.split("/")[1] for each in references("targets")}
    assert {each.split("/")[1] for each in given} == folders


def test_every_reference_plugin_is_certified() -> None:
    """``./run certify`` and the lane take what there is a profile for, and the modalities."""
    targets = [each.split(":")[0].split("@")[0] for each in references("targets")]
    folder = ROOT / "reference_plugins"
    profiles = folder.rglob("*.conformance.toml")
    modalities = [
        path
        for path in (folder / "modality").glob("*.py")
        if re.search(r"^class \w+Plugin:", path.read_text(encoding="utf-8"), re.MULTILINE)
    ]

    expected = [path.with_name(path.name.replace(".conformance.toml", ".py")) for path in profiles]
    assert {str(path.relative_to(ROOT)) for path in (*expected, *modalities)} == set(targets)
