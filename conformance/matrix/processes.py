# SPDX-License-Identifier: Apache-2.0
"""Commands that run side by side, and end together."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence

import attrs

#: Seconds that an interrupted command may take to end its own engines and servers.
GRACE = 15.0


@attrs.frozen
class Done:
    """A command that has ended."""

    status: int
    output: str
    errors: str


class Processes:
    """The commands of a run; those that are left when it ends are ended with it."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._ended = False

    def run(self, command: Sequence[str], variables: Mapping[str, str]) -> Done:
        """Run a command with these environment variables, and no others, to its end."""
        with self._lock:
            if self._ended:
                return Done(-signal.SIGINT, "", "interrupted")
            # A group of its own: it is ended with all that it started.
            process = subprocess.Popen(
                command,
                env=dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._running.add(process)
        output, errors = process.communicate()
        with self._lock:
            self._running.discard(process)
        return Done(process.returncode, output, errors)

    def end(self) -> None:
        """Interrupt what still runs, and kill what does not end."""
        with self._lock:
            self._ended = True
            running = list(self._running)
        # What was started in the background may ignore interrupts, and then so do its children.
        for number in (signal.SIGINT, signal.SIGTERM):
            for process in running:
                _signal(process, number)
            for process in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(GRACE)
        for process in running:
            _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[str], number: signal.Signals) -> None:
    """Send a signal to a process and all that it started; one that has ended gets none."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
