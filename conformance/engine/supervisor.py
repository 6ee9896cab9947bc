# SPDX-License-Identifier: Apache-2.0
"""A program that keeps a process group from outliving the process that asked for it.

``python -I -S supervisor.py PARENT_PID GRACE COMMAND...`` starts COMMAND in a session of its own
and ends it when standard input closes, or has something to read, or PARENT_PID is no longer the
parent: SIGTERM, GRACE seconds, then SIGKILL to the whole group.
When COMMAND ends by itself, what is left of its group is killed too.
It says ``pid N`` on standard output at the start and ``exit STATUS`` at the end, negative for a
signal; COMMAND's own output goes to standard error.

A supervisor is needed because vLLM's engine process survives the SIGKILL of its API server, and
because a parent-death signal is sent when the *thread* that started the child ends.
Only the standard library is used: it must start at once and weigh nothing.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from typing import NoReturn, Protocol

# From <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36

_POLL = 0.1  # seconds; also the delay after which a death is noticed
_REAP = 5.0  # seconds in which killed processes must have disappeared


class Child(Protocol):
    """What is supervised: a ``subprocess.Popen``, or something like it."""

    pid: int

    def poll(self) -> int | None:
        """Return the exit status if it has ended."""

    def terminate(self) -> None:
        """Ask it to end."""

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; ``subprocess.TimeoutExpired`` after ``timeout`` seconds."""


def main(arguments: list[str]) -> None:
    """Run the command and return when nothing of its process group is left."""
    parent, grace, command = int(arguments[0]), float(arguments[1]), arguments[2:]
    signal.signal(signal.SIGTERM, leave)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr.fileno(),
        start_new_session=True,
        preexec_fn=linux_ties(),  # noqa: PLW1509 - this process has one thread
    )
    supervise(child, parent, grace)


def supervise(child: Child, parent: int, grace: float) -> None:
    """Return when nothing of the child's process group is left; :func:`leave` takes SIGTERM."""
    try:
        os.write(1, b"pid %d\n" % child.pid)
        while child.poll() is None:
            readable, _, _ = select.select([0], [], [], _POLL)
            # A fork of the parent may hold the pipe open: what is written to it is an order to
            # end as well, and so is the parent's death.
            if readable or os.getppid() != parent:
                break
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        _end(child, grace)
    # The reader may be gone.
    with contextlib.suppress(BrokenPipeError):
        os.write(1, b"exit %d\n" % child.wait())


def _end(child: Child, grace: float) -> None:
    child.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=grace)
    deadline = time.monotonic() + _REAP
    while _kill_group(child.pid) and time.monotonic() < deadline:
        child.wait()
        # The group's orphans are ours to bury: not every container has an init that does.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-child.pid, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def _kill_group(group: int) -> bool:
    """Send SIGKILL and say whether there was anyone to receive it."""
    try:
        os.killpg(group, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        # macOS answers EPERM for a group of zombies.
        return False
    return True


def linux_ties() -> Callable[[], object] | None:
    """Adopt orphaned descendants, and return what makes a child die with this process."""
    if sys.platform != "linux":
        return None
    import ctypes

    libc = ctypes.CDLL(None)
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # SIGTERM, because the API server can still end its engine, and no one else would.
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def leave(number: int, _frame: object) -> NoReturn:
    """End this process, by way of its ``finally`` blocks."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    main(sys.argv[1:])
