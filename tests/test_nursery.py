# SPDX-License-Identifier: Apache-2.0
"""Zygotes that are forked from a process which has imported vLLM already."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from user import CLI, run, start

from conformance.running.zygotes import start_zygote
from conformance.worker import Zygote, nursery

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PATIENCE = 20.0  # seconds in which a process must be there, or gone

DEEDS = """
import os, sys

def tells(connection):
    connection.recv()
    variables = [os.environ.get(name) for name in ("GREETING", "PYTEST_GREETING")]
    connection.send([*variables, sys.path, os.getpid()])
"""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a nursery that has imported next to nothing."""
    path = tmp_path_factory.mktemp("nursery") / "socket"
    with nursery.start(path, ["json"], _environment()) as process:
        end = time.monotonic() + PATIENCE
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.05)
        yield path
        process.kill()


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != nursery.ADDRESS}


def _zygote(address: Path, folder: Path, **changes: str) -> Zygote:
    environment = {**_environment(), nursery.ADDRESS: str(address), **changes}
    return Zygote(preload=["json"], environment=environment, log=folder / "zygote.log")


def test_a_zygote_is_as_if_the_run_had_started_it(address: Path, tmp_path: Path) -> None:
    """It has the run's variables and path, its jobs answer, and it ends with the run."""
    (tmp_path / "deeds.py").write_text(DEEDS)
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    with _zygote(address, tmp_path, PYTEST_GREETING="hello", PYTHONPATH=path) as zygote:
        assert isinstance(zygote._process, nursery.Adopted)
        job = zygote.fork("deeds:tells", {}, log=tmp_path / "job.log", directory=tmp_path)
        missing, greeting, found, pid = job.ask("whoever", limit=PATIENCE)
        pids = [zygote._process.pid, pid]

    assert (missing, greeting, str(tmp_path) in found) == (None, "hello", True)
    alive = [psutil.Process(each) for each in pids if psutil.pid_exists(each)]
    assert not psutil.wait_procs(alive, PATIENCE)[1]


@pytest.mark.parametrize("name", ["json.py", "sitecustomize.py", "other.dist-info"])
def test_a_folder_that_could_change_imports_is_not_overlooked(
    address: Path, tmp_path: Path, name: str
) -> None:
    """Such a run imports by itself."""
    (tmp_path / name).touch()
    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    environment = {**_environment(), nursery.ADDRESS: str(address), "PYTHONPATH": path}

    assert nursery.adopt(["json"], environment, 1) is None


def test_no_run_gets_the_folder_of_another(address: Path) -> None:
    """An empty entry of PYTHONPATH is the folder that a process works in."""
    path = os.pathsep.join(["", os.environ.get("PYTHONPATH", "")])
    environment = {**_environment(), nursery.ADDRESS: str(address), "PYTHONPATH": path}

    assert nursery.adopt(["json"], environment, 1) is None


@pytest.mark.parametrize(
    ("preload", "variable"), [("json", "OMP_NUM_THREADS"), ("json", "VLLM_PLUGINS"), ("csv", "_")]
)
def test_a_run_that_differs_imports_by_itself(address: Path, preload: str, variable: str) -> None:
    """In the modules that it wants, or in a variable that importing may read."""
    environment = {**_environment(), nursery.ADDRESS: str(address), variable: "3"}
    assert nursery.listens(address)

    assert nursery.adopt([preload], environment, 1) is None


def test_an_address_where_nobody_listens_is_none(tmp_path: Path) -> None:
    """A run whose nursery has ended imports by itself."""
    with _zygote(tmp_path / "nothing", tmp_path) as zygote:
        assert isinstance(zygote._process, subprocess.Popen)
        zygote.wait_ready()


def test_a_nursery_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """It is nobody's child by then, and looks for itself."""
    path = tmp_path / "socket"
    program = (
        "import os, pathlib; from conformance.worker import nursery;"
        f"nursery.start(pathlib.Path({str(path)!r}), ['json'], os.environ)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if not any(
            str(path) in (p.info["cmdline"] or ()) for p in psutil.process_iter(["cmdline"])
        ):
            return
        time.sleep(0.1)
    pytest.fail("it is still there")


def test_warm_saves_runs_the_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until Ctrl-C, runs of this environment start without; a second one is told of the first."""
    folder = tempfile.mkdtemp(prefix="warm-")  # the folders of pytest are too deep for a socket
    monkeypatch.setenv("TMPDIR", folder)
    monkeypatch.setattr(tempfile, "tempdir", folder)
    monkeypatch.delenv(nursery.ADDRESS, raising=False)
    with start(*CLI, "warm", folder=tmp_path) as process:
        try:
            assert process.stdout is not None
            said = process.stdout.readline()
            status, again = run(*CLI, "warm", folder=tmp_path)
            with start_zygote() as zygote:
                zygote.wait_ready()
                adopted = zygote._process
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE)
        finally:
            process.kill()

    assert said.startswith("vLLM is imported (")
    assert status == 4
    assert again.startswith("vllm-conformance: vLLM is kept imported already")
    assert isinstance(adopted, nursery.Adopted)
    assert process.returncode == 0
    assert not nursery.listens(nursery.address())


def test_a_socket_has_a_short_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the temporary folder lies deep, another one is taken."""
    monkeypatch.setattr(tempfile, "tempdir", "/" + "deep/" * 30)

    assert len(str(nursery.address())) < 100
