# SPDX-License-Identifier: Apache-2.0
"""A real ``vllm serve`` of our own.

`external` gives a server that runs already the same surface.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import final

from conformance.engine import held as held_process
from conformance.engine import model_runner, server_process
from conformance.engine.entry_points import synthetic_distribution
from conformance.engine.environment import GPU_SHARE, eager, has_no_room, host_environment
from conformance.engine.external_server import (
    ExternalServer,
    HostTrouble,
    ServerFailed,
    external,
    open_client,
    trouble,
)
from conformance.engine.fork import Forked, fork_supervised, may_fork
from conformance.engine.model_runner import Runner
from conformance.engine.models import additional_config
from conformance.engine.server_log import cause, last_line, port_was_taken, read_log

__all__ = ["ExternalServer", "HostTrouble", "Server", "ServerFailed", "external", "hold"]

_HOST = "127.0.0.1"
_STARTS = 3  # how often a server that lost the race for its port is started
_POLL = 0.1  # seconds between two looks at a server that starts
_GRACE = 10.0  # seconds between SIGTERM and SIGKILL
_SUPERVISOR = Path(__file__).with_name("supervisor.py")

# For tiny models only: the memory for keys and values is fixed, because vLLM's default wants most
# of the machine's; the executor without a worker process saves an import of vLLM, and only its
# full name is not turned back into the one with.
_ARGUMENTS = (
    "--max-model-len=256",
    "--dtype=float32",
    "--max-num-seqs=8",
    f"--kv-cache-memory-bytes={32 << 20}",
)
_DEVICE_ARGUMENTS = {
    "cpu": ("--distributed-executor-backend=vllm.v1.executor.uniproc_executor.UniProcExecutor",),
    "cuda": (f"--gpu-memory-utilization={GPU_SHARE}",),
}


#: Seconds in which a server tells what it has counted.
METRICS = 10.0


@final
class Server:
    """A ``vllm serve`` process of our own; make one with `Server.start`.

    It ends with `stop`, at the end of a ``with`` block, when the interpreter exits, and, by way of
    a supervising process, when this process is killed.
    """

    def __init__(
        self,
        *,
        model_name: str,
        log: Path,
        port: int | None,
        command: Sequence[str],
        environment: Mapping[str, str],
        scratch: tempfile.TemporaryDirectory[str],
        imported: bool = False,
        fresh: bool = False,
    ) -> None:
        """Start the process; `Server.start` prepares what it needs."""
        self.model_name = model_name
        self.log = log
        self._fixed_port = port
        self._command = tuple(command)
        self._environment = dict(environment)
        self._scratch = scratch
        self._imported = imported
        self._fresh = fresh
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._client = open_client(f"http://{_HOST}")
        self._starts = 0
        self._exit_status: int | None = None
        self._was_healthy = False
        self._stopped = False
        self._launch()
        atexit.register(self.stop)

    @classmethod
    def start(
        cls,
        model: Path | str,
        *,
        log: Path,
        served_model_name: str = "tiny",
        logits_processors: Sequence[str] = (),
        python_path: Sequence[Path | str] = (),
        entry_points: Mapping[str, Mapping[str, str]] | None = None,
        device: str = "cpu",
        port: int | None = None,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        imported: bool = False,
        fresh: bool = False,
        runner: Runner | None = None,
    ) -> Server:
        """Start a server in the background and return at once.

        *model* is a folder or a name; *logits_processors* are ``"package.module:Class"`` names;
        *entry_points* maps groups to entry points, seen by this server alone;
        *device* is ``"cpu"`` or ``"cuda"``; *arguments* come after the defaults for tiny models
        and so override them; *environment* overrides every other variable.
        Without *port* a free one is chosen.
        *imported* says that this process has imported vLLM: a server on the CPU is then forked
        from it, where that is safe, and imports nothing again.
        *fresh* says that the process that `hold` forked may be a server on the CPU, where there is
        one: it and its engine each import what this process has imported since.
        *runner* is the model runner, ``"v1"`` or ``"v2"``; without it vLLM chooses.
        Everything vLLM prints goes to *log*, which is overwritten.

        Raises:
            ServerFailed: if *port* is given and in use.
            ValueError: if an entry point cannot be written.
        """
        scratch = tempfile.TemporaryDirectory(prefix="vllm-conformance-")
        try:
            folder = Path(scratch.name)
            path = [*python_path]
            variables: dict[str, str] = {}
            if runner is not None:
                path += model_runner.python_path(runner, device)
                variables |= model_runner.environment(runner)
            for index, (group, entries) in enumerate((entry_points or {}).items()):
                path.append(
                    synthetic_distribution(
                        folder, name=f"conformance-entries-{index}", group=group, entries=entries
                    )
                )
            command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(model)]
            command += [f"--host={_HOST}", f"--served-model-name={served_model_name}"]
            if beside := additional_config(model):
                command.append(f"--additional-config={json.dumps(beside)}")
            command += [*_ARGUMENTS, *_DEVICE_ARGUMENTS[device]]
            command += ["--enforce-eager"] if eager(device) else []
            if logits_processors:
                command += ["--logits-processors", *logits_processors]
            return cls(
                model_name=served_model_name,
                log=log,
                port=port,
                command=[*command, *arguments],
                environment=host_environment(
                    python_path=dict.fromkeys(path),
                    extra=variables | dict(environment or {}),
                    plugins=chain.from_iterable((entry_points or {}).values()),
                    device=device,
                ),
                scratch=scratch,
                imported=imported and device == "cpu",
                fresh=fresh and device == "cpu",
            )
        except BaseException:
            scratch.cleanup()
            raise

    def _launch(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._reservation = _reserve(self._fixed_port or 0)
        self.port: int = self._reservation.getsockname()[1]
        if sys.platform != "linux":
            # Elsewhere a bound socket keeps vLLM itself from the port.
            self._reservation.close()
        self._starts += 1
        command = [*self._command, f"--port={self.port}"]
        self._process: subprocess.Popen[str] | Forked
        with self.log.open("wb") as log:
            if self._fresh and (held := held_process.taken()) is not None:
                self._process = held.serve(command, self._environment, self.log.absolute())
            elif self._imported and may_fork():
                self._process = fork_supervised(
                    lambda: server_process.serve(command, self._environment), log.fileno(), _GRACE
                )
            else:
                interpreter = [sys.executable, "-I", "-S", str(_SUPERVISOR)]
                self._process = subprocess.Popen(
                    [*interpreter, str(os.getpid()), str(_GRACE), *command],
                    env=self._environment,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        assert self._process.stdout is not None
        word, _, number = self._process.stdout.readline().partition(" ")
        if word != "pid":
            self._exit_status = self._process.wait()
            self._reservation.close()
            raise ServerFailed(f"vLLM could not be started{self._evidence(of_death=True)}")
        #: process id of vLLM's API server, and of its process group
        self.pid = int(number)

    @property
    def url(self) -> str:
        """The address without a path, ``http://127.0.0.1:PORT``."""
        return f"http://{_HOST}:{self.port}"

    def alive(self) -> bool:
        """Whether the process runs, healthy or not."""
        return self._process.poll() is None

    def healthy(self) -> bool:
        """Whether the server answers that it is healthy, asked once."""
        return self.alive() and trouble(self._client, f"{self.url}/health") is None

    def preemptions(self) -> int:
        """Return how often a request was preempted, as the server counts; 0 if it cannot say."""
        import httpx

        with contextlib.suppress(httpx.HTTPError, ValueError):
            text = self._client.get(f"{self.url}/metrics", timeout=METRICS).text
            counts = re.findall(r"^vllm:num_preemptions_total\{.*\} (\S+)$", text, re.MULTILINE)
            return int(sum(map(float, counts)))
        return 0

    def wait_healthy(self, timeout: float = 180.0) -> None:
        """Return when the server is healthy.

        A server whose port was taken while it started is started again on another; so read `port`
        and `url` afterwards.

        Raises:
            ServerFailed: if it died.
            HostTrouble: if there is no room for it, or it is not healthy within *timeout* seconds.
        """
        deadline = time.monotonic() + timeout
        while not self.healthy():
            failure = self.failure()
            if failure is not None:
                if not self._start_elsewhere():
                    raise (HostTrouble if has_no_room(failure) else ServerFailed)(failure)
            elif self._stopped:
                raise ServerFailed(
                    f"the vLLM server on port {self.port} was stopped before it was healthy"
                )
            elif time.monotonic() > deadline:
                evidence = self._evidence(of_death=False)
                raise HostTrouble(f"vLLM did not become healthy within {timeout:g} s{evidence}")
            time.sleep(_POLL)
        self._was_healthy = True
        self._reservation.close()

    def failure(self, *, within: float = 0.0) -> str | None:
        """Return a sentence on how the process died, or None if it runs or was stopped.

        An engine that a plugin brought down takes the server with it some seconds later:
        *within* is how many seconds to wait for that.
        """
        if self._stopped:
            return None
        try:
            self._process.wait(within)
        except subprocess.TimeoutExpired:
            return None
        status = self._status()
        if status is None:
            ending = "lost its supervisor"
        elif status < 0:
            ending = f"was killed by {signal.Signals(-status).name}"
        else:
            # An API server whose engine died ends with 0.
            ending = f"ended with exit status {status}"
        phase = "while it served" if self._was_healthy else "before it was healthy"
        return f"vLLM {ending} {phase}{self._evidence(of_death=True)}"

    def stop(self) -> None:
        """End the server and every process it started, and wait until they are gone."""
        # A fork of this process runs its exit handlers too.
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._stopped = True
            assert self._process.stdin is not None
            # The supervisor's signal to end the server; other forks of this process may have
            # copies of the pipe, so that closing it says nothing.
            if not self._process.stdin.closed:
                with contextlib.suppress(OSError):  # the supervisor has ended
                    self._process.stdin.write("end")
                    self._process.stdin.flush()
                with contextlib.suppress(OSError):
                    self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2 * _GRACE)
            if self._process.poll() is None or self._status() is None:
                # The supervisor is stuck, or was killed before it had done its work.
                for group in (self.pid, self._process.pid):
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(group, signal.SIGKILL)
                self._process.wait()
            self._close()
            self._scratch.cleanup()
        atexit.unregister(self.stop)

    def _close(self) -> None:
        self._reservation.close()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()

    def _start_elsewhere(self) -> bool:
        """Start again on another port, if the port was the trouble, and say whether."""
        with self._lock:
            taken = port_was_taken(read_log(self.log))
            if self._stopped or self._fixed_port or self._starts == _STARTS or not taken:
                return False
            self._close()
            self._exit_status = None
            self._launch()
            return True

    def _status(self) -> int | None:
        """Return the exit status that the supervisor reported, if it did."""
        assert self._process.stdout is not None
        if not self._process.stdout.closed:
            for line in self._process.stdout:
                word, _, number = line.partition(" ")
                if word == "exit":
                    self._exit_status = int(number)
        return self._exit_status

    def _evidence(self, *, of_death: bool) -> str:
        log = read_log(self.log)
        if of_death and (reason := cause(log)):
            text = f": {reason}"
        elif line := last_line(log):
            text = f", and its log ends with {line!r}"
        else:
            text = ", and its log is empty"
        return f"{text} (log: {self.log})"

    def __enter__(self) -> Server:
        """Return the server itself, which may still be starting."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop the server."""
        self.stop()


def hold() -> None:
    """Fork the process of a server that is started later, before this one imports anything else."""
    held_process.hold(server_process.serve_fresh, _GRACE)


def _reserve(port: int) -> socket.socket:
    """Return a socket bound to *port*, or to a free one if it is 0, that does not listen.

    As long as it is open, no other process is given the port; vLLM may bind it all the same,
    because it sets the same option.
    """
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        reservation.bind((_HOST, port))
    except OSError as error:
        reservation.close()
        raise ServerFailed(
            f"port {port} of {_HOST} cannot be used for the vLLM server: {error.strerror}"
        ) from error
    return reservation
