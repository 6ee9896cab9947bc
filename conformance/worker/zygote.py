# SPDX-License-Identifier: Apache-2.0
"""The zygote: imports vLLM once, then forks a job for every request.

Run as ``python -m conformance.worker.zygote FD``, where FD is one end of a socket pair.
Each request is one datagram that names a function and carries the job's own connection.
When the other end closes, for whatever reason, the zygote ends its jobs and itself:
no process of a run survives the run.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import importlib
import os
import pickle
import select
import signal
import socket
import sys
import time
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator

#: A request is small: a function name, plain options, paths.
MAX_REQUEST = 1 << 16

#: How long jobs may take to end their own servers and engines before they are killed.
GRACE_SECONDS = 10.0


def main() -> None:
    """Serve fork requests until the other end of the socket closes."""
    control = socket.socket(fileno=int(sys.argv[1]))
    started = time.perf_counter()
    _send(control, {"ready": _preload(sys.argv[2:]), "seconds": time.perf_counter() - started})
    wake_read, wake_write = os.pipe()
    watched: list[socket.socket | int] = [control, wake_read]
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    jobs: set[int] = set()
    while True:
        readable, _, _ = select.select(watched, [], [])
        if wake_read in readable:
            os.read(wake_read, 4096)
            _report_ended(control, jobs)
        if control in readable:
            request, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST, 2)
            if not request:
                break
            pid = os.fork()
            if pid == 0:
                control.close()
                signal.set_wakeup_fd(-1)
                _run_job(pickle.loads(request), descriptors)  # noqa: S301 - our own parent wrote it
            for descriptor in descriptors:
                os.close(descriptor)
            jobs.add(pid)
            _send(control, {"forked": pid})
    _end(jobs)
    # As in a job: nothing is left to finalise.
    os._exit(0)


def _preload(modules: list[str]) -> str | None:
    """Import the modules; return None, or a sentence that says what could not be imported."""
    # Nothing that is imported here is ever garbage: collecting while importing costs a fifth
    # of the import, and frozen objects are not touched (and copied) by the jobs' collections.
    gc.disable()
    module = "nothing"
    try:
        for module in modules:
            importlib.import_module(module)
    except BaseException as error:  # noqa: BLE001 - reported to the parent as a sentence
        traceback.print_exc()
        return f"importing {module} raised {type(error).__name__}: {error}"
    finally:
        gc.freeze()
        gc.enable()
    return None


def _run_job(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run one job in this (forked) process and end it."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The parent ends a job with SIGTERM: as an exception, so that servers are ended too.
        signal.signal(signal.SIGTERM, _leave)
        os.setpgid(0, 0)
        connection_fd, log_fd = descriptors
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        # SIGUSR1 writes the Python stack to the log: how a hang is explained.
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        # The caller's order first; what only this process knows stays reachable behind it.
        sys.path[:] = dict.fromkeys([*request["python_path"], *sys.path])
        os.chdir(request["directory"])
        module, _, name = request["function"].partition(":")
        function = getattr(importlib.import_module(module), name)
        with Connection(connection_fd) as connection:
            function(connection, **request["arguments"])
        status = 0
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except _Ended:
        status = 128 + signal.SIGTERM
    except BaseException:  # noqa: BLE001 - the parent reads it from the log
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not sys.exit: finalising an interpreter that holds torch takes half a second.
        os._exit(status)


class _Ended(BaseException):
    """The job is to end; of a type that nobody takes for something that a plugin raised."""


def _leave(*_: object) -> NoReturn:
    # Once: a second one would interrupt the clearing up.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise _Ended


def _report_ended(control: socket.socket, jobs: set[int]) -> None:
    """Tell the parent which jobs have ended, and how."""
    for pid, status in _bury(jobs):
        _send(control, {"ended": pid, "status": status})


def _bury(jobs: set[int]) -> Iterator[tuple[int, int]]:
    """Take the jobs that have ended out of the set; yield each with its exit status."""
    while jobs:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        # What a job has started and left is in its process group, whose number can be nobody
        # else's until the job is waited for.  A supervisor of servers ends them when asked to.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(ended.si_pid, signal.SIGTERM)
        pid, status = os.waitpid(ended.si_pid, 0)
        jobs.discard(pid)
        yield pid, os.waitstatus_to_exitcode(status)


def _end(jobs: set[int]) -> None:
    """End all jobs, first politely."""
    signal.set_wakeup_fd(-1)
    deadline = time.monotonic() + GRACE_SECONDS
    for pid in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
    while jobs and time.monotonic() < deadline:
        for _ in _bury(jobs):
            pass
        time.sleep(0.02)
    for pid in jobs:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    # A parent that has gone is noticed by the reading end.
    with contextlib.suppress(OSError):
        control.send(pickle.dumps(message))


if __name__ == "__main__":
    main()
