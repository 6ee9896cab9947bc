# SPDX-License-Identifier: Apache-2.0
"""Processes that wait for the command of a server: what they have not seen, and how they end."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 20.0  # seconds in which a process must be gone

# What the held process was told is in its log, and so is which module it has not imported.
PARENT = """
import os, sys, time
from pathlib import Path
from conformance.engine import held

def program(command, environment):
    print(command, environment, "poplib" in sys.modules, os.getppid() != parent, flush=True)
    time.sleep(600)

parent, log = os.getpid(), Path(sys.argv[1])
held.hold(program, 5.0)
import poplib
# A process like this one has copies of all pipes, for as long as it lives.
if (copy := os.fork()) == 0:
    time.sleep(600)
if "lets-go" in sys.argv:
    held.let_go()
    print(held.taken(), flush=True)
else:
    process = held.taken().serve(["serve", "x" * 100_000], {"A": "1"}, log)
    print(held.taken(), flush=True)
    while not log.exists() or b"\\n" not in log.read_bytes():
        time.sleep(0.05)
    print(process.stdout.readline().strip(), flush=True)
    if "stays" in sys.argv:
        time.sleep(600)
    process.stdin.write("end")
    process.stdin.close()
    print(process.wait(20), flush=True)
os.kill(copy, 9)
"""


def _start(log: Path, how: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PARENT, str(log), how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def _below(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def test_a_held_process_has_seen_nothing_since(tmp_path: Path) -> None:
    """It runs the command that it is given later, however long, without what was imported since."""
    log = tmp_path / "server.log"
    with _start(log, "stops") as parent:
        out, _ = parent.communicate(timeout=60)
    nothing, pid, status = out.splitlines()

    assert nothing == "None"
    assert pid.startswith("pid ")
    assert status == "0"
    assert log.read_text() == f"{['serve', 'x' * 100_000]} {{'A': '1'}} False True\n"


def test_a_process_that_nobody_takes_is_ended(tmp_path: Path) -> None:
    """Other forks may hold its pipes open, and it ends all the same."""
    with _start(tmp_path / "server.log", "lets-go") as parent:
        out, _ = parent.communicate(timeout=60)

    assert out == "None\n"
    assert not (tmp_path / "server.log").exists()


def test_a_held_process_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """When the process that told it what to run is killed, so is what it runs."""
    with _start(tmp_path / "server.log", "stays") as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        pid = int(parent.stdout.readline().split()[1])
        family = _below(parent)
        assert pid in {process.pid for process in family}
        os.kill(parent.pid, 9)
    left = psutil.wait_procs([psutil.Process(pid)], PATIENCE)[1] if psutil.pid_exists(pid) else []
    for process in family:
        if process.is_running():
            process.kill()

    assert not left
