# SPDX-License-Identifier: Apache-2.0
"""Programs that run in a fork of this process, which has imported what takes them long.

Worker processes only: they run no threads of their own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn, TextIO

import attrs

from conformance.engine import supervisor

_POLL = 0.02  # seconds between two looks at a process that is waited for


def may_fork() -> bool:
    """Tell whether this process can be forked safely: it runs no other threads.

    A fork has the thread pools of OpenMP on paper only and would wait for them for ever.
    """
    return sys.platform == "linux" and len(list(Path("/proc/self/task").iterdir())) == 1


def drop_sockets(*kept: int, pipes: bool = False) -> None:
    """Let go of the sockets, and on request the pipes, that a fork has inherited.

    Whoever talks to the forked process's parent learns of the parent's end, or of its leave, by
    the end of the connection, and a copy of it would keep it open.
    Standard input and outputs stay.
    """
    nothing = os.open(os.devnull, os.O_RDWR)
    for entry in os.listdir("/proc/self/fd"):  # noqa: PTH208 - names are all that is wanted
        descriptor = int(entry)
        if descriptor <= 2 or descriptor in kept:  # noqa: PLR2004 - standard error
            continue
        with contextlib.suppress(OSError):  # the folder's own descriptor is closed by now
            mode = os.fstat(descriptor).st_mode
            # Replaced, not closed: the objects that own them will close them.
            if stat.S_ISSOCK(mode) or (pipes and stat.S_ISFIFO(mode)):
                os.dup2(nothing, descriptor)
    os.close(nothing)


@attrs.define
class Forked:
    """A forked process, with as much of ``subprocess.Popen`` as servers and supervisors use."""

    pid: int
    returncode: int | None = None
    stdin: TextIO | None = None
    stdout: TextIO | None = None

    def poll(self) -> int | None:
        """Return the exit status, negative for a signal, if the process has ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the process.

        Raises:
            subprocess.TimeoutExpired: it has not ended after ``timeout`` seconds.

        """
        deadline = time.monotonic() + (timeout or 0.0)
        while (status := self.poll()) is None:
            if timeout is not None and time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            time.sleep(_POLL)
        return status

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGTERM)


def fork(program: Callable[[], object]) -> Forked:
    """Run a program in a fork of this process."""
    pid = os.fork()
    if pid == 0:
        _run(program)
    return Forked(pid)


def fork_supervised(
    program: Callable[[], object], log: int, grace: float, *, kept: Sequence[int] = ()
) -> Forked:
    """Run a program in a session of its own, under a supervisor as ``supervisor.py`` is one.

    Args:
        program: what to run.
        log: descriptor of the file for its output.
        grace: seconds from SIGTERM to SIGKILL.
        kept: descriptors of pipes that the program needs.

    Returns:
        The supervisor: it ends the program when its ``stdin`` is closed, or is written to.

    """
    parent = os.getpid()
    orders, ours = os.pipe()
    reports, theirs = os.pipe()

    def supervised() -> None:
        # What is about to be replaced is no longer this process's.
        os.setsid()
        for source, target in ((os.open(os.devnull, os.O_RDONLY), 0), (2, 1)):
            os.dup2(source, target)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        program()

    def supervise() -> None:
        signal.signal(signal.SIGTERM, supervisor.leave)
        os.setsid()
        for source, target in ((orders, 0), (theirs, 1), (log, 2)):
            os.dup2(source, target)
        for descriptor in (orders, ours, reports, theirs):
            os.close(descriptor)
        # Another server's supervisor may wait for the end of a pipe from this process's parent.
        drop_sockets(*kept, pipes=True)
        ties = supervisor.linux_ties()

        def tied() -> None:
            if ties is not None:
                ties()
            supervised()

        supervisor.supervise(fork(tied), parent, grace)

    process = fork(supervise)
    os.close(orders)
    os.close(theirs)
    process.stdin, process.stdout = os.fdopen(ours, "w"), os.fdopen(reports)
    return process


def _run(program: Callable[[], object]) -> NoReturn:
    status = 1
    try:
        program()
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:  # noqa: BLE001 - the log is where it is looked for
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)
