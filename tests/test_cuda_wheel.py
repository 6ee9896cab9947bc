# SPDX-License-Identifier: Apache-2.0
"""vLLM as built for CUDA, on a machine without a GPU: ``./run cuda``."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from old_hosts import certified, failures
from programs import execute_apart
from support import (
    DEFECTIVE,
    DEFECTIVE_PARSER,
    DEFECTIVE_SLOT,
    FIXTURES,
    ROOT,
    Specimen,
    as_toml,
    gallery,
)
from user import CLI, PYTEST, run

from conformance.verdict import ExitStatus

if TYPE_CHECKING:
    from collections.abc import Sequence


def _here() -> bool:
    """Tell whether the installed vLLM is built for CUDA, and no GPU is here to run it."""
    try:
        importlib.metadata.version("vllm")
        needed = importlib.metadata.requires("torch") or ()
    except importlib.metadata.PackageNotFoundError:
        return False
    return any(each.startswith("cuda-") for each in needed) and shutil.which("nvidia-smi") is None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not _here(),
        reason="the installed vLLM is no build for CUDA on a machine without a GPU: ./run cuda",
    ),
]

REFERENCES = ROOT / "reference_plugins"
BUILD = "CUDA build, simulator on CPU"


def _one(folder: Path, name: str) -> Specimen:
    return next(each for each in gallery(folder) if each.name == name)


def _judged(command: Sequence[str], folder: Path, *options: str) -> tuple[int, dict[str, Any], str]:
    """Certify as a user does, and return the certificate, or the last one written."""
    status, said = run(*command, *options, "--conformance-report", "report", folder=folder)
    paths = sorted(folder.glob("report/*/certificate.json"))
    assert paths, said
    return status, json.loads(paths[-1].read_text(encoding="utf-8")), said


@pytest.mark.parametrize("generation", ["logits_batch", "logits_slot"])
def test_a_reference_is_conformant_without_an_option(generation: str, tmp_path: Path) -> None:
    """The certificate names the build and what it ran on, and nothing is installed."""
    before = _installed()
    target = str(REFERENCES / generation / "target_token.py")
    status, certificate, said = _judged((*PYTEST, "--plugin-path", target), tmp_path)

    assert status == ExitStatus.CONFORMANT, said
    environment = certificate["environment"]
    assert environment["vllm"] == importlib.metadata.version("vllm")
    assert environment["host_build"] == BUILD
    assert _installed() == before


def _installed() -> list[str]:
    """Return what lies in the environment, but for byte code."""
    site = Path(sysconfig.get_paths()["purelib"])
    return sorted(each.name for each in site.iterdir() if each.name != "__pycache__")


@pytest.mark.parametrize(
    "specimen",
    [
        _one(DEFECTIVE, "keeps_replaced_occupant"),
        _one(DEFECTIVE, "takes_two_arguments"),
        _one(DEFECTIVE_SLOT, "counts_outputs_from_prefill"),
        _one(DEFECTIVE_SLOT, "keeps_target_of_previous_occupant"),
    ],
    ids=lambda each: each.name,
)
def test_a_defective_plugin_fails_by_its_own_rule(specimen: Specimen, tmp_path: Path) -> None:
    """Its program shows the fault by itself, in a process that knows nothing of the harness."""
    profile = tmp_path / "profile.toml"
    profile.write_text(as_toml(specimen.profile, specimen.section), encoding="utf-8")
    options = ("--plugin-path", specimen.target, "--plugin-profile", str(profile))
    status, certificate, said = _judged((*PYTEST, *options), tmp_path)

    assert status == ExitStatus.NON_CONFORMANT, said
    assert specimen.rule in failures(certificate)
    (program,) = tmp_path.glob(f"report/*/cases/{specimen.rule}.py")
    done = execute_apart(program)
    assert done.returncode == 1, done.stderr
    assert "FAILS: " in done.stdout


@pytest.mark.parametrize(
    "target",
    [
        "io_processor/long_document.py",
        "io_processor/labels.py@io/data",
        "classifier_hook/hooks/annotator.py",
        "tiny_vlm/model.py",
        "modality/images.py",
        "parser/tagged_calls.py",
        "parser/thinking.py",
    ],
)
def test_references_of_every_family_are_conformant(target: str, tmp_path: Path) -> None:
    """In the simulator, which is what every CI can run."""
    status, certificate = certified(str(REFERENCES / target), tmp_path)

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    assert certificate["environment"]["host_build"] == BUILD


@pytest.mark.engine
@pytest.mark.server
@pytest.mark.parametrize(
    "target",
    [
        "logits_batch/target_token.py",
        "logits_slot/target_token.py",
        "io_processor/labels.py@io/data",
    ],
)
def test_engines_and_servers_run_on_the_cpu(target: str, tmp_path: Path) -> None:
    """The certificate says with what."""
    path = str(REFERENCES / target)
    status, certificate = certified(path, tmp_path, "--evidence", "offline,server")

    assert status == ExitStatus.CONFORMANT, failures(certificate)
    assert certificate["environment"]["host_engines"].startswith("CUDA build, on CPU: ")


def test_a_plugin_that_takes_a_gpu_is_not_to_blame(tmp_path: Path) -> None:
    """What it asks the host for is not there: nothing is shown of it, in a sentence about that."""
    source = (FIXTURES / "mended_example.py").read_text(encoding="utf-8")
    before = "    def apply(self, logits):\n"
    assert before in source
    asked = before + "        torch.ops._C.rms_norm(logits, logits, logits, 0.1)\n"
    (tmp_path / "asks.py").write_text(source.replace(before, asked), encoding="utf-8")
    status, certificate, said = _judged((*CLI, "certify", "asks.py:DummyLogitsProcessor"), tmp_path)

    assert status == ExitStatus.INCOMPLETE, said
    assert not failures(certificate)
    told = [rule["message"] for rule in certificate["rules"] if rule["message"]]
    assert any("has no operation _C.rms_norm for a CPU" in each for each in told)


def test_the_host_of_a_parser_needs_no_device(tmp_path: Path) -> None:
    """A defective parser fails there as everywhere."""
    specimen = next(each for each in gallery(DEFECTIVE_PARSER[0]) if not each.profile)
    status, certificate, said = _judged((*CLI, "certify", specimen.target), tmp_path)

    assert status == ExitStatus.NON_CONFORMANT, said
    assert specimen.rule in failures(certificate)


def test_the_environment_is_as_pip_left_it() -> None:
    """vLLM by itself still finds no device: what is set is set for processes of a run."""
    program = "from vllm.platforms import current_platform as p; print(p.is_unspecified())"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )

    assert done.stdout.splitlines()[-1] == "True"
