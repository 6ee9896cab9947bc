# SPDX-License-Identifier: Apache-2.0
"""The caller's side of the worker processes."""

from __future__ import annotations

import contextlib
import math
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from enum import Enum
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Self

from conformance.worker import nursery
from conformance.worker.processes import descendants, describe, last_line, tells_its_stack
from conformance.worker.signs import RETURNED

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

ZYGOTE = "conformance.worker.zygote"

#: Importing vLLM from a cold disk without bytecode took 40 s; nothing should take this long.
IMPORT_LIMIT = 300.0

#: How often a waiting caller gets the chance to show that it is waiting.
TICK_SECONDS = 0.5

#: What is in a pipe is read in.
NO_TIME = 0.001

#: Where no call into the plugin has returned for so many seconds, the one under way hangs.
CALL_RETURNS = 30.0

#: How many times longer than its limit a job may take on a machine that is busy with others.
PATIENCE = 4


class ZygoteFailed(Exception):
    """vLLM could not be imported: one sentence."""


class JobDied(Exception):
    """The process of a job ended before it answered: one sentence."""

    def __init__(self, message: str, *, exit_status: int | None) -> None:
        super().__init__(message)
        self.exit_status = exit_status


class JobHung(Exception):
    """A job did not answer within its limit: one sentence."""

    def __init__(self, message: str, *, stack: str, returning: bool = False) -> None:
        super().__init__(message)
        self.stack = stack  #: Python stack of the job when it was given up
        self.returning = returning  #: whether calls into the plugin returned until then


class Zygote:
    """A process that has imported vLLM and forks jobs."""

    def __init__(
        self, *, preload: Sequence[str], environment: Mapping[str, str], log: Path
    ) -> None:
        """Start the process and return at once; importing goes on in the background."""
        self._log = log
        self._process: subprocess.Popen[bytes] | nursery.Adopted
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as output:
            adopted = nursery.adopt(preload, environment, output.fileno())
            self._process, self._control = adopted or _started(preload, environment, output)
        self._asked = 0  #: how many jobs it was asked for
        self._forked: list[int] = []  #: the processes of those that it has forked
        self._ended: dict[int, int] = {}
        self._ready: float | None = None
        #: Whether vLLM takes no device but the CPU there, once it is imported.
        self.on_cpu = True

    def wait_ready(self) -> float:
        """Wait until vLLM is imported; return the seconds that the import took.

        Raises:
            ZygoteFailed: the import raised, or ended the process.

        """
        started = time.monotonic()
        while self._ready is None:
            told = self._receive(TICK_SECONDS)
            if told is not None:
                if told["ready"] is not None:
                    raise ZygoteFailed(f"vLLM could not be imported: {told['ready']}.")
                self._ready, self.on_cpu = told["seconds"], told["on_cpu"]
            elif self._process.poll() is not None:
                raise ZygoteFailed(
                    f"vLLM could not be imported: the process ended with status "
                    f"{self._process.returncode} ({last_line(self._log)})."
                )
            elif time.monotonic() - started > IMPORT_LIMIT:
                raise ZygoteFailed(f"importing vLLM took longer than {IMPORT_LIMIT:.0f} s.")
        return self._ready

    def fork(
        self,
        function: str,
        arguments: Mapping[str, Any],
        *,
        log: Path,
        directory: Path,
        python_path: Sequence[str] = (),
        preload: Sequence[str] = (),
    ) -> Job:
        """Have a job forked that runs ``module:function(connection, **arguments)``.

        Returns at once: what is imported before the fork may take seconds.

        Args:
            function: what it runs.
            arguments: its arguments; they are pickled.
            log: file that its output is appended to.
            directory: folder that it works in.
            python_path: folders that come first on its ``sys.path``.
            preload: modules that are imported before the fork, for this job and those after it.

        """
        self.wait_ready()
        ours, theirs = socket.socketpair()
        request = {
            "function": function,
            "arguments": dict(arguments),
            "directory": str(directory),
            "python_path": list(python_path),
            "preload": list(preload),
        }
        with theirs, log.open("ab") as output:
            socket.send_fds(
                self._control, [pickle.dumps(request)], [theirs.fileno(), output.fileno()]
            )
        self._asked += 1
        return Job(self._asked, Connection(ours.detach()), log, self)

    def forked(self, number: int) -> int:
        """Wait until a job is forked, which was asked for as this one; return its process.

        Raises:
            JobDied: the zygote ended before.

        """
        while len(self._forked) < number:
            if (told := self._receive(None)) is None:
                message = f"the process that forks others has ended; see {self._log}"
                raise JobDied(message, exit_status=None)
            self._note(told)
        return self._forked[number - 1]

    def exit_status(self, pid: int, limit: float = 5.0) -> int | None:
        """Wait until a job has ended; return its exit status, negative for a signal."""
        deadline = time.monotonic() + limit
        while pid not in self._ended and time.monotonic() < deadline:
            told = self._receive(max(0.0, deadline - time.monotonic()))
            if told is None:
                break
            self._note(told)
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

    def _note(self, told: Mapping[str, Any]) -> None:
        if "forked" in told:
            # The number of a process that ended may be given to another one.
            self._ended.pop(told["forked"], None)
            self._forked.append(told["forked"])
        elif "ended" in told:
            self._ended[told["ended"]] = told["status"]

    def _receive(self, limit: float | None) -> dict[str, Any] | None:
        self._control.settimeout(limit)
        try:
            data = self._control.recv(1 << 16)
        except (TimeoutError, ConnectionResetError, BlockingIOError):
            return None
        return pickle.loads(data) if data else None  # noqa: S301 - written by our own zygote


def _started(
    preload: Sequence[str], environment: Mapping[str, str], output: BinaryIO
) -> tuple[subprocess.Popen[bytes], socket.socket]:
    """Start a zygote; return it and our end of its socket."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
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
    return process, ours


def first_heard(jobs: Iterable[Job], limit: float) -> None:
    """Return when one of these jobs has said something or ended, or after so many seconds."""
    connections.wait([job._connection for job in jobs], limit)  # noqa: SLF001 - this module's own


class _NotYet(Enum):
    """That a job has not answered; not None, which may be an answer."""

    NOT_YET = "not yet"


NOT_YET = _NotYet.NOT_YET


class Job:
    """One forked process, and the conversation with it."""

    def __init__(self, number: int, connection: Connection, log: Path, zygote: Zygote) -> None:
        self.log = log
        self._number = number  #: which of the jobs of its zygote it is, from 1
        self._connection = connection
        self._zygote = zygote
        self._busy = False  #: whether a question is not answered yet
        self._limit = self._deadline = math.inf
        self._looked = -math.inf
        self._queued: dict[int, float] = {}  #: seconds waited for a core when it was looked at
        self._lost = False  #: whether it was gone before it had the question
        self._returned = -math.inf  #: when a call into the plugin was last said to have returned
        self._over = math.inf  #: when its time was found to be over

    def ask(
        self,
        question: object,
        *,
        limit: float,
        progress: Callable[[str], None] | None = None,
        patience: Callable[[Job], str | None] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the job answers
        """Send a question and wait for its answer; strings before it are progress.

        With each of them the time begins anew; an empty one says only that the job is at work.
        ``patience`` is asked every now and then, and ends it when it returns a reason.

        Raises:
            JobDied: the process ended first.
            JobHung: nothing came for ``limit`` seconds, or there is no more patience; the process
                has been killed.

        """
        self.put(question, limit=limit)
        return self.wait(progress, patience)

    def wait(
        self,
        progress: Callable[[str], None] | None = None,
        patience: Callable[[Job], str | None] | None = None,
    ) -> Any:  # noqa: ANN401 - whatever the job answers
        """Wait for the answer to the question that was put, as :meth:`ask` does."""
        while (answer := self.hear(progress)) is NOT_YET:
            left = self._left()
            first_heard([self], TICK_SECONDS if left < 0 else min(TICK_SECONDS, left + NO_TIME))
            if patience and not self._connection.poll() and (reason := patience(self)):
                raise JobHung(reason, stack=self._give_up())
        return answer

    @property
    def pid(self) -> int:
        """Its process, once it is forked; waits for that.

        Raises:
            JobDied: it never will be.

        """
        return self._zygote.forked(self._number)

    def put(self, question: object, *, limit: float) -> None:
        """Send a question, to be answered within ``limit`` seconds, and return at once."""
        self._limit = limit
        self._busy = True
        try:
            self._zygote.forked(self._number)  # its time begins when it does
            self._begin_anew()
            self._connection.send(question)
        except (JobDied, ConnectionResetError, BrokenPipeError):
            self._lost = True

    def hear(self, progress: Callable[[str], None] | None = None) -> Any:  # noqa: ANN401 - as `ask`
        """Return the answer to the question that was put, or ``NOT_YET``; waits for nothing.

        Strings are progress, with which the time begins anew.

        Raises:
            JobDied: the process ended first.
            JobHung: the time is over; the process has been killed.

        """
        try:
            while not self._lost and self._connection.poll():
                answer = self._connection.recv()
                if answer is RETURNED:
                    self._returned = time.monotonic()
                    continue
                if not isinstance(answer, str):
                    self._busy = False
                    return answer
                self._begin_anew()
                if progress and answer:
                    progress(answer)
        except (EOFError, ConnectionResetError, BrokenPipeError):
            self._lost = True
        if self._lost:
            status = self._zygote.exit_status(self.pid)
            raise JobDied(f"the process {describe(status)}", exit_status=status)
        if self._left() < 0:
            self._see_whether_it_hangs()
        return NOT_YET

    def _see_whether_it_hangs(self) -> None:
        """Give the job up, unless only its next sign can tell whether a call hangs or many last."""
        now = time.monotonic()
        self._over = min(self._over, now)
        returning = self._returned > self._over
        if returning or now - self._returned > CALL_RETURNS:
            message = f"did not answer within {self._limit:.0f} s"
            raise JobHung(message, stack=self._give_up(), returning=returning)

    def _begin_anew(self) -> None:
        now = time.monotonic()
        if now > self._looked + 1.0:  # signs of life may come often
            self._looked, self._queued = now, self._delays()
        self._deadline, self._over = now + self._limit, math.inf

    def _left(self) -> float:
        """Return the seconds that the job still has.

        The time in which it could run, and the machine had no core for it, is not its own.
        """
        left = self._deadline - time.monotonic()
        if left > 0:
            return left
        lost = max(
            (delay - self._queued.get(pid, 0.0) for pid, delay in self._delays().items()),
            default=0.0,
        )
        return left + min(lost, (PATIENCE - 1) * self._limit)

    def _delays(self) -> dict[int, float]:
        """Return how long the processes of the job have waited for a core, in seconds."""
        found = {}
        for pid in (self.pid, *descendants(self.pid)):
            with contextlib.suppress(OSError):
                told = Path(f"/proc/{pid}/schedstat").read_text(encoding="ascii")
                found[pid] = int(told.split()[1]) / 1e9
        return found

    def leave(self, *, hurried: bool = False) -> None:
        """Tell the job that no more questions come, and return at once.

        It finishes what it is doing, such as starting an engine; a hurried one does not.
        """
        self._connection.close()
        if (self._busy or hurried) and not self._ended(0.0):
            # The caller was interrupted, and the job would notice only when it has an answer.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)

    def ended(self) -> bool:
        """Tell whether the process has ended."""
        return self._ended(NO_TIME)

    def close(self) -> None:
        """Tell the job that no more questions come, and wait for its end."""
        self.leave()
        if not self._ended(20.0):
            self._kill()

    def _ended(self, limit: float) -> bool:
        """Wait until the process has ended, or was never forked; tell whether it has."""
        try:
            return self._zygote.exit_status(self.pid, limit=limit) is not None
        except JobDied:
            return True

    def stack(self) -> str:
        """Return the Python stack of the job as it is now."""
        return self._stacks([self.pid])

    def _stacks(self, pids: Sequence[int]) -> str:
        size = self.log.stat().st_size
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)
        time.sleep(0.3)
        return self.log.read_bytes()[size:].decode(errors="replace")

    def _give_up(self) -> str:
        # It may be waiting for a process of its own, in which the plugin is.
        stack = self._stacks([self.pid, *filter(tells_its_stack, descendants(self.pid))])
        self._kill()
        return stack

    def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._zygote.exit_status(self.pid)
