# SPDX-License-Identifier: Apache-2.0
"""The supervisor with a family of ordinary processes; `test_server` has it with vLLM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from conformance.engine import supervisor

if TYPE_CHECKING:
    from collections.abc import Iterator

PATIENCE = 20.0  # seconds in which a process must be gone

# A process with a child in the same group, as an API server has its engine.
FAMILY = """
import os, signal, subprocess, sys, time
if "stubborn" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(os.getpid(), child.pid, flush=True)
time.sleep(600)
"""

# A process that starts the supervisor, and a fork of it that inherits every pipe.
PARENT = """
import os, subprocess, sys, time
process = subprocess.Popen(
    [*sys.argv[2:4], str(os.getpid()), *sys.argv[4:]],
    stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
)
family = process.stderr.readline().strip()
fork = os.fork() if "fork" in sys.argv[1] else 0
if fork or "fork" not in sys.argv[1]:
    print(family, fork, flush=True)
time.sleep(600)
"""


class Family:
    """A supervised leader and its child."""

    def __init__(self, *, grace: float = 5.0, stubborn: bool = False) -> None:
        self.process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", supervisor.__file__, str(os.getpid()), str(grace)),
                *(sys.executable, "-c", FAMILY, *(["stubborn"] if stubborn else [])),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        self.leader, self.child = (
            psutil.Process(int(pid)) for pid in self.process.stderr.readline().split()
        )

    def end(self) -> list[str]:
        """Close standard input, wait, and return what the supervisor said."""
        said, _ = self.process.communicate(timeout=PATIENCE)
        return said.splitlines()


@pytest.fixture
def family() -> Iterator[Family]:
    """Start a family, and end what is left of it."""
    family = Family()
    yield family
    family.process.kill()
    for process in (family.leader, family.child):
        if process.is_running():
            process.kill()
    # Only now, because they hold the pipe.
    family.process.communicate()


def alive(*processes: psutil.Process) -> list[psutil.Process]:
    """Return those of *processes* that are not gone in time."""
    return psutil.wait_procs(processes, timeout=PATIENCE)[1]


def test_closing_standard_input_ends_the_group(family: Family) -> None:
    """The leader gets SIGTERM, the rest goes with it, and nobody is left when it is said."""
    said = family.end()

    assert [f"pid {family.leader.pid}", "exit -15"] == said
    assert not family.leader.is_running()
    assert not family.child.is_running()


def test_stubborn_leader_is_killed() -> None:
    """A leader that ignores SIGTERM is killed after the grace, with its group."""
    family = Family(grace=0.2, stubborn=True)

    said = family.end()

    assert said[-1] == "exit -9"
    assert not family.leader.is_running()
    assert not family.child.is_running()


def test_killed_leader_leaves_nobody(family: Family) -> None:
    """When the leader is killed from outside, what it started does not survive it."""
    family.leader.kill()

    assert not alive(family.leader, family.child)
    assert family.end()[-1] == "exit -9"


def test_terminated_supervisor_ends_the_group(family: Family) -> None:
    """A supervisor that is asked to leave takes the group with it."""
    family.process.terminate()

    assert family.process.wait(PATIENCE) == 128 + signal.SIGTERM
    assert not alive(family.leader, family.child)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a child of its parent's end")
def test_killed_supervisor_is_noticed_by_the_leader(family: Family) -> None:
    """When even the supervisor is killed, the leader gets SIGTERM, to end its own children."""
    family.process.kill()

    assert not alive(family.leader)


@pytest.mark.parametrize("kind", ["alone", "fork"])
def test_killed_parent_leaves_nobody(kind: str) -> None:
    """A parent that is killed leaves nobody, also when a fork of it keeps the pipe open."""
    parent = subprocess.Popen(
        [
            *(sys.executable, "-c", PARENT, kind),
            *(f"{sys.executable}", supervisor.__file__, "5", sys.executable, "-c", FAMILY),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    *family, fork = map(int, parent.stdout.readline().split())
    processes = [psutil.Process(pid) for pid in family]

    parent.kill()
    parent.wait()

    try:
        assert len(processes) == 2
        assert not alive(*processes)
    finally:
        if fork:
            psutil.Process(fork).kill()
        parent.stdout.close()
