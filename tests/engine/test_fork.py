# SPDX-License-Identifier: Apache-2.0
"""Programs in forks: what they inherit, who ends them, and a whole server."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from conformance.engine.models import tiny_llama

if TYPE_CHECKING:
    from conformance.worker import Zygote

PATIENCE = 20.0  # seconds in which a process must be gone

# A process that has a supervised program with a child in its group, and does what it is told.
PARENT = """
import os, subprocess, sys, time
from conformance.engine.fork import fork_supervised

def program():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("told", os.getpid(), child.pid, flush=True)
    if "ends" in sys.argv:
        sys.exit(3)
    time.sleep(600)

log = open(sys.argv[1], "wb")
supervisor = fork_supervised(program, log.fileno(), 5.0)
print(supervisor.stdout.readline().strip(), flush=True)
if "stops" in sys.argv:
    while b"told" not in open(sys.argv[1], "rb").read():
        time.sleep(0.05)
    supervisor.stdin.close()
if "stays" not in sys.argv:
    print(supervisor.stdout.readline().strip(), supervisor.wait(20), flush=True)
time.sleep(600)
"""

SOCKETS = """
import os, socket, sys, time
from conformance.engine.fork import drop_sockets, fork

ours, theirs = socket.socketpair()
kept, answers = socket.socketpair()
def program():
    drop_sockets(answers.fileno())
    answers.send(b"dropped")
    time.sleep(600)
child = fork(program)
print(kept.recv(16).decode(), flush=True)
theirs.close()
ours.settimeout(20)
print(ours.recv(1) == b"", flush=True)
child.terminate()
print(child.wait(20), flush=True)
"""

TWO = """
import sys, time
from conformance.engine.fork import fork_supervised

log = open(sys.argv[1], "wb")
first, second = [fork_supervised(lambda: time.sleep(600), log.fileno(), 5.0) for _ in range(2)]
for supervisor in (first, second):
    supervisor.stdout.readline()
first.stdin.close()
print(first.wait(20), second.poll() is None, flush=True)
second.stdin.close()
print(second.wait(20), flush=True)
"""


def _start(tmp_path: Path, *how: str) -> tuple[subprocess.Popen[str], Path]:
    log = tmp_path / "program.log"
    command = [sys.executable, "-c", PARENT, str(log), *how]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True), log


def _family(log: Path) -> list[psutil.Process]:
    """Return the program and its child."""
    deadline = time.monotonic() + PATIENCE
    while not (words := log.read_text().split()) and time.monotonic() < deadline:
        time.sleep(0.05)
    found = []
    for word in words[1:3]:
        with contextlib.suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(word)))
    return found


def test_a_fork_lets_go_of_its_sockets() -> None:
    """The other end of an inherited connection sees the end; a socket that is kept works."""
    done = subprocess.run(
        [sys.executable, "-c", SOCKETS], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.split() == ["dropped", "True", str(-signal.SIGTERM)]


def test_the_end_of_a_program_is_reported(tmp_path: Path) -> None:
    """The supervisor tells the process id and the exit status, and ends what the program left."""
    parent, log = _start(tmp_path, "ends")
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline().startswith("pid ")
        assert parent.stdout.readline() == "exit 3 0\n"
        _, gone_or_not = psutil.wait_procs(_family(log), timeout=PATIENCE)
        parent.kill()

    assert not gone_or_not


def test_each_of_two_programs_is_ended_by_its_own_pipe(tmp_path: Path) -> None:
    """A later fork holds no copy of the pipe whose end an earlier supervisor waits for."""
    done = subprocess.run(
        [sys.executable, "-c", TWO, str(tmp_path / "program.log")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.split() == ["0", "True", "0"]


def test_closing_ends_a_program(tmp_path: Path) -> None:
    """When the supervisor's input is closed, the program is ended with its whole group."""
    parent, log = _start(tmp_path, "stops")
    with parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        assert parent.stdout.readline() == f"exit {-signal.SIGTERM} 0\n"
        _, left = psutil.wait_procs(_family(log), timeout=PATIENCE)
        parent.kill()

    assert not left


def test_a_program_does_not_outlive_its_parent(tmp_path: Path) -> None:
    """When the process that forked it is killed, the program is ended with its whole group."""
    parent, log = _start(tmp_path, "stays")
    with parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        family = _family(log)
        os.kill(parent.pid, signal.SIGKILL)
        _, left = psutil.wait_procs(family, timeout=PATIENCE)

    assert len(family) == 2
    assert not left


#: In the command of every process that is a fork of a zygote, whoever has started that.
FORKED = "conformance.worker"


@pytest.mark.server
def test_a_server_is_forked(zygote: Zygote, tmp_path: Path) -> None:
    """Where vLLM is imported, a server and its engine are forks of that process."""
    job = zygote.fork(
        "fork_job:serve",
        {"model": str(tiny_llama()), "log": str(tmp_path / "server.log")},
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    try:
        command, family, status, left, failure = job.ask("serve", limit=180)
    finally:
        job.close()

    assert FORKED in " ".join(command)
    assert family == 2
    assert status == 200
    assert not left
    assert failure is None


#: A plugin that writes down which processes import it.
IMPORTED = """
import os
from pathlib import Path
from vllm.v1.sample.logits_processor import LogitsProcessor

with Path(__file__).with_name("imported").open("a") as file:
    file.write(f"{os.getpid()}\\n")

class Idle(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return logits
"""


@pytest.mark.server
def test_a_held_server_imports_the_plugin_by_itself(zygote: Zygote, tmp_path: Path) -> None:
    """Its front end and its engine are forks, and each imports the plugin by itself."""
    (tmp_path / "idle_plugin.py").write_text(IMPORTED)
    job = zygote.fork(
        "fork_job:serve_fresh",
        {
            "model": str(tiny_llama()),
            "folder": str(tmp_path),
            "plugin": "idle_plugin:Idle",
        },
        log=tmp_path / "job.log",
        directory=tmp_path,
        python_path=[str(Path(__file__).parent)],
    )
    try:
        pid, commands, status, left = job.ask("serve", limit=240)
    finally:
        job.close()
    trial, *others = dict.fromkeys((tmp_path / "imported").read_text().split())

    assert int(trial) == job.pid
    assert str(pid) in others
    assert len(others) == 2
    assert FORKED in commands[0]
    assert "--multiprocessing-fork" not in " ".join(commands)  # no new interpreter
    assert status == 200
    assert not left
