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
import math
import os
import pickle
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
import traceback
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from conformance.worker import private

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: A request is small: a function name, plain options, paths.
MAX_REQUEST = 1 << 16

#: How long jobs may take to end their own servers and engines before they are killed, and so may
#: what they left behind.
GRACE_SECONDS = 10.0

#: How often what a job left behind is looked after.
LOOK_SECONDS = 0.2

#: The longest folder for temporary files in which each job gets one of its own: what is longer
#: leaves no room for the names of vLLM's sockets, of 37 characters in the 107 that Linux takes.
_LONGEST_ROOT = 30

#: Values on the stack of a frame whose chunk is 1 MiB, half of which is left.
_STACK = (1 << 16) + 1000

_PR_SET_CHILD_SUBREAPER = 36  # from <linux/prctl.h>


def main() -> None:
    """Import what the command line names, and serve."""
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])


def serve(control: socket.socket, modules: Sequence[str]) -> NoReturn:
    """Import modules, and fork what is asked for until the other end of the socket closes."""
    _with_room(partial(_serve, control, modules))


def _with_room(call: Callable[[], NoReturn]) -> NoReturn:
    """Call a function below which frames have room.

    CPython keeps them in chunks of 16 KiB, and takes and gives back one whenever calls cross its
    end: 28,000 times while vLLM is imported, which are 6 % of that. A frame that asks for a large
    stack gets a large chunk, with room for those that follow, in jobs as well.
    """
    call()


_with_room.__code__ = _with_room.__code__.replace(co_stacksize=_STACK)


def _serve(control: socket.socket, modules: Sequence[str]) -> NoReturn:
    _adopt()
    started = time.perf_counter()
    problem = preload(modules)
    told = {"ready": problem, "seconds": time.perf_counter() - started, "on_cpu": _on_cpu()}
    _send(control, told)
    wake_read, wake_write = os.pipe()
    watched: list[socket.socket | int] = [control, wake_read]
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    done = set(modules)
    jobs: set[int] = set()
    orphans: dict[int, float] = {}
    scratch = _scratch()
    while True:
        readable, _, _ = select.select(watched, [], [], LOOK_SECONDS if orphans else None)
        if wake_read in readable:
            os.read(wake_read, 4096)
            _report_ended(control, jobs, scratch)
        if orphans or wake_read in readable:
            _end_orphans(orphans, jobs)
        if control in readable:
            try:
                request, descriptors, _, _ = socket.recv_fds(control, MAX_REQUEST, 2)
            except ConnectionResetError:  # a parent that was killed before it read our last word
                break
            if not request:
                break
            wanted = pickle.loads(request)  # noqa: S301 - our own parent wrote it
            if new := [each for each in wanted["preload"] if each not in done]:
                done.update(new)
                preload(new)  # what cannot be imported fails in the job, which says so
            pid = os.fork()
            if pid == 0:
                control.close()
                signal.set_wakeup_fd(-1)
                _run_job(wanted, descriptors, scratch)
            for descriptor in descriptors:
                os.close(descriptor)
            jobs.add(pid)
            _send(control, {"forked": pid})
    _end(jobs, orphans, scratch)
    # As in a job: nothing is left to finalise.
    os._exit(0)


def preload(modules: Sequence[str]) -> str | None:
    """Import the modules; return None, or a sentence that says what could not be imported.

    One that is written ``module:function`` is imported and its function called, before the next;
    if that returns names of modules, these are imported, too.
    What another release of vLLM does not have is left to whoever needs it: all that this saves
    them is time.
    """
    # Nothing that is imported here is ever garbage: collecting while importing costs a fifth
    # of the import, and frozen objects are not touched (and copied) by the jobs' collections.
    gc.disable()
    module, left = "nothing", list(modules)
    try:
        while left:
            module = left.pop(0)
            name, _, function = module.partition(":")
            try:
                imported = importlib.import_module(name)
            except ImportError as error:
                if not (error.name or "").startswith("vllm."):
                    raise
                traceback.print_exc()
                continue
            if function:
                left[:0] = getattr(imported, function)() or ()
        private.keep()
    except BaseException as error:  # noqa: BLE001 - reported to the parent as a sentence
        traceback.print_exc()
        if isinstance(error, ModuleNotFoundError) and error.name == "vllm":
            return "it is not installed here: pip install vllm, or vllm-plugin-conformance[cpu]"
        return f"importing {module} raised {type(error).__name__}: {error}"
    finally:
        gc.freeze()
        gc.enable()
    return None


def _on_cpu() -> bool:
    """Tell whether vLLM, as far as it is imported, takes no device but the CPU."""
    platforms = sys.modules.get("vllm.platforms")
    return platforms is None or platforms.current_platform.device_type == "cpu"


def _scratch() -> Path | None:
    """Make a folder for the temporary files of all jobs, which are removed with them.

    vLLM leaves sockets and a file for each engine behind, and a process that is killed the rest.
    """
    if len(os.fsencode(tempfile.gettempdir())) > _LONGEST_ROOT:
        return None
    return Path(tempfile.mkdtemp(prefix="vllm-conformance-"))


def _run_job(request: dict[str, Any], descriptors: list[int], scratch: Path | None) -> None:
    """Run one job in this (forked) process and end it."""
    status = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # The parent ends a job with SIGTERM: as an exception, so that servers are ended too.
        signal.signal(signal.SIGTERM, _leave)
        os.setpgid(0, 0)
        _adopt()
        connection_fd, log_fd = descriptors
        os.dup2(log_fd, 1)
        os.dup2(log_fd, 2)
        # SIGUSR1 writes the Python stack to the log: how a hang is explained.
        faulthandler.register(signal.SIGUSR1, file=2, all_threads=True)
        # The caller's order first; what only this process knows stays reachable behind it.
        sys.path[:] = dict.fromkeys([*request["python_path"], *sys.path])
        os.chdir(request["directory"])
        if scratch:
            tempfile.tempdir = os.environ["TMPDIR"] = str(scratch / str(os.getpid()))
            Path(tempfile.tempdir).mkdir()
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


def _report_ended(control: socket.socket, jobs: set[int], scratch: Path | None) -> None:
    """Tell the parent which jobs have ended, and how; remove their temporary files."""
    for pid, status in _bury(jobs):
        _send(control, {"ended": pid, "status": status})
        if scratch:
            shutil.rmtree(scratch / str(pid), ignore_errors=True)


def _bury(jobs: set[int]) -> Iterator[tuple[int, int]]:
    """Take the jobs that have ended out of the set; yield each with its exit status."""
    while True:
        try:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return
        if ended is None:
            return
        if ended.si_pid in jobs:
            # What a job has started and left is in its process group, whose number can be nobody
            # else's until the job is waited for.  A supervisor of servers ends them when asked to.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(ended.si_pid, signal.SIGTERM)
        pid, status = os.waitpid(ended.si_pid, 0)
        if pid in jobs:
            jobs.discard(pid)
            yield pid, os.waitstatus_to_exitcode(status)


def _adopt() -> None:
    """Become the parent of descendants whose own parents end, whatever sessions they are in.

    Those of a job are the job's, and the zygote's after its end: the zygote's children are its
    jobs, and what ended jobs have left.
    """
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _end_orphans(orphans: dict[int, float], jobs: set[int]) -> None:
    """End what ended jobs have left: ask each once, kill it with all below it after a while.

    A supervisor ends its server when asked; what it leaves then is the zygote's, and asked in turn.
    """
    import psutil

    now = time.monotonic()
    left = {each.pid: each for each in psutil.Process().children() if each.pid not in jobs}
    for pid, process in left.items():
        with contextlib.suppress(psutil.Error):
            if pid not in orphans:
                orphans[pid] = now
                process.terminate()
            elif now - orphans[pid] > GRACE_SECONDS:
                for each in (*process.children(recursive=True), process):
                    with contextlib.suppress(psutil.Error):
                        each.kill()
    for pid in orphans.keys() - left.keys():
        del orphans[pid]


def _end(jobs: set[int], orphans: dict[int, float], scratch: Path | None) -> None:
    """End all jobs and what they have left, first politely; remove their temporary files."""
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
    jobs.clear()
    _end_orphans(orphans, jobs)
    while orphans and time.monotonic() < deadline + 2:
        time.sleep(0.02)
        for _ in _bury(jobs):
            pass
        if time.monotonic() > deadline:
            orphans.update(dict.fromkeys(orphans, -math.inf))
        _end_orphans(orphans, jobs)
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)


def _send(control: socket.socket, message: dict[str, Any]) -> None:
    # A parent that has gone is noticed by the reading end.
    with contextlib.suppress(OSError):
        control.send(pickle.dumps(message))


if __name__ == "__main__":
    main()
