# SPDX-License-Identifier: Apache-2.0
"""The caller's side of the worker processes."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

ZYGOTE = "conformance.worker.zygote"

#: Importing vLLM from a cold disk without bytecode took 40 s; nothing should take this long.
IMPORT_LIMIT = 300.0

#: How often a waiting caller gets the chance to show that it is waiting.
TICK_SECONDS = 0.5


class ZygoteFailed(Exception):
    """vLLM could not be imported: one sentence."""


class JobDied(Exception):
    """The process of a job ended before it answered: one sentence."""

    def __init__(self, message: str, *, exit_status: int | None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class JobHung(Exception):
    """A job did not answer within its limit: one sentence."""

    def __init__(self, message: str, *, stack: str) -> None:
        super().__init__(message)
        self.stack = stack  #: Python stack of the job when it was given up


class Zygote:
    """A process that has imported vLLM and forks jobs."""

    def __init__(
        self, *, preload: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Start the process and return at once; importing goes on in the background."""
        self._log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, log.open("wb") as output:
            self._process = subprocess.Popen(
                # -P: nothing in the caller's folder may shadow a module of ours.
                [sys.executable, "-P", "-m", ZYGOTE, str(theirs.fileno()), *preload],
                pass_fds=[theirs.fileno()],
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                # Ctrl-C is for the caller, who then closes us in order.
                start_new_session=True,
            )
        self._control = ours
        self._ended: dict[int, int] = {}
        self._ready: float | None = None

    def wait_ready(self, waiting: Callable[[float], None] | None = None) -> float:
        """Wait until vLLM is imported; return the seconds that the import took.

        Raises:
            ZygoteFailed: the import raised, or ended the process.

        """
        started = time.monotonic()
        while self._ready is None:
            message = self._receive(TICK_SECONDS)
            if message is not None:
                if message["ready"] is not None:
                    raise ZygoteFailed(f"vLLM could not be imported: {message['ready']}.")
                self._ready = message["seconds"]
            elif self._process.poll() is not None:
                raise ZygoteFailed(
                    f"vLLM could not be imported: the process ended with status "
                    f"{self._process.returncode} ({_last_line(self._log)})."
                )
            elif time.monotonic() - started > IMPORT_LIMIT:
                raise ZygoteFailed(f"importing vLLM took longer than {IMPORT_LIMIT:.0f} s.")
            elif waiting:
                waiting(time.monotonic() - started)
        return self._ready

    def fork(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        log: Path,
        directory: Path,
        python_path: Sequence[str] = (),
    ) -> Job:
        """Fork a job that runs ``module:function(connection, **arguments)``."""
        self.wait_ready()
        ours, theirs = socket.socketpair()
        request = {
            "function": function,
            "arguments": dict(arguments),
            "directory": str(directory),
            "python_path": list(python_path),
        }
        with theirs, log.open("ab") as output:
            socket.send_fds(
                self._control, [pickle.dumps(request)], [theirs.fileno(), output.fileno()]
            )
        while (message := self._receive(None)) is not None and "forked" not in message:
            self._note(message)
        if message is None:
            raise ZygoteFailed("the worker process ended; see " + str(self._log))
        # The number of a process that ended may be given to another one.
        self._ended.pop(message["forked"], None)
        return Job(message["forked"], Connection(ours.detach()), log, self)

    def exit_status(self, pid: int, limit: float = 5.0) -> int | None:
        """Wait until a job has ended; return its exit status, negative for a signal."""
        deadline = time.monotonic() + limit
        while pid not in self._ended and time.monotonic() < deadline:
            message = self._receive(max(0.0, deadline - time.monotonic()))
            if message is None:
                break
            self._note(message)
        return self._ended.get(pid)

    def close(self) -> None:
        """End all jobs and the zygote, and wait for them."""
        self._control.close()
        self._log.unlink(missing_ok=True)
        if self._ready is None:
            # Still importing: there are no jobs to end, and nothing to wait for.
            self._process.kill()
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _note(self, message: Mapping[str, Any]) -> None:
        if "ended" in message:
            self._ended[message["ended"]] = message["status"]

    def _receive(self, limit: float | None) -> dict[str, Any] | None:
        self._control.settimeout(limit)
        try:
            data = self._control.recv(1 << 16)
        except (TimeoutError, ConnectionResetError, BlockingIOError):
            return None
        return pickle.loads(data) if data else None  # noqa: S301 - written by our own zygote


class Job:
    """One forked process, and the conversation with it."""

    def __init__(self, pid: int, connection: Connection, log: Path, zygote: Zygote) -> None:
        self.pid = pid
        self.log = log
        self._connection = connection
        self._zygote = zygote
        self._busy = False  #: whether a question is not answered yet

    def ask(
        self,
        question: object,
        *,
        limit: float,
        progress: Callable[[str], None] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the job answers
        """Send a question and wait for its answer; strings before it are progress.

        With each of them the time begins anew; an empty one says only that the job is at work.

        Raises:
            JobDied: the process ended first.
            JobHung: nothing came for ``limit`` seconds; the process has been killed.

        """
        deadline = time.monotonic() + limit
        self._busy = True
        try:
            self._connection.send(question)
            while True:
                if self._connection.poll(min(TICK_SECONDS, max(0.0, deadline - time.monotonic()))):
                    answer = self._connection.recv()
                    if not isinstance(answer, str):
                        self._busy = False
                        return answer
                    deadline = time.monotonic() + limit
                    if progress and answer:
                        progress(answer)
                elif time.monotonic() > deadline:
                    raise JobHung(f"did not answer within {limit:.0f} s", stack=self._give_up())
        except (EOFError, ConnectionResetError, BrokenPipeError):
            status = self._zygote.exit_status(self.pid)
            raise JobDied(f"the process {_describe(status)}", exit_status=status) from None

    def close(self) -> None:
        """Tell the job that no more questions come, and wait for its end."""
        self._connection.close()
        if self._busy and self._zygote.exit_status(self.pid, limit=0.0) is None:
            # The caller was interrupted, and the job would notice only when it has an answer.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        if self._zygote.exit_status(self.pid, limit=20.0) is None:
            self._kill()

    def _give_up(self) -> str:
        size = self.log.stat().st_size
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        time.sleep(0.3)
        stack = self.log.read_bytes()[size:].decode(errors="replace")
        self._kill()
        return stack

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._zygote.exit_status(self.pid)


def _describe(status: int | None) -> str:
    if status is None:
        return "ended"
    if status < 0:
        return f"was ended by signal {signal.Signals(-status).name}"
    return f"ended with exit status {status}"


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").strip().splitlines()
        if lines:
            return lines[-1]
    return f"see {log}"
