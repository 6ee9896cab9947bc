# SPDX-License-Identifier: Apache-2.0
"""A process that is forked before the plugin is imported, and is told later which server to be.

A server that is named the plugin has to import it by itself, as the user's will.  A process that
has imported vLLM and not the plugin can be that server, and saves the import of vLLM.
Worker processes only: at most one is held, and nothing else runs in it.
"""

from __future__ import annotations

import os
import pickle
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import attrs

from conformance.engine.fork import Forked, fork_supervised, may_fork

Program = Callable[[Sequence[str], Mapping[str, str]], object]

_LENGTH = struct.Struct("Q")

#: The processes that this one holds; each is taken once.
_HELD: list[Held] = []


@attrs.frozen
class Held:
    """A supervised process that waits for the command of a server."""

    _supervisor: Forked
    _orders: int  #: descriptor of the pipe that the command goes into

    def serve(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Forked:
        """Have the process run a command, with its output in a file; return its supervisor."""
        said = pickle.dumps((list(command), dict(environment), str(log)))
        try:
            _write(self._orders, _LENGTH.pack(len(said)) + said)
        finally:
            os.close(self._orders)
        return self._supervisor

    def alive(self) -> bool:
        """Tell whether the process still waits."""
        return self._supervisor.poll() is None

    def close(self) -> None:
        """End the process, which has served nothing."""
        os.close(self._orders)
        self._supervisor.terminate()
        self._supervisor.wait()
        for stream in (self._supervisor.stdin, self._supervisor.stdout):
            if stream is not None:
                stream.close()


def hold(program: Program, grace: float) -> None:
    """Fork a process for a server, where this one can be forked.

    Args:
        program: what it runs, with the command and all of the environment.
        grace: seconds from SIGTERM to SIGKILL.

    """
    if not may_fork():
        return
    orders, ours = os.pipe()

    def wait() -> None:
        (length,) = _LENGTH.unpack(_read(orders, _LENGTH.size))
        command, environment, log = pickle.loads(_read(orders, length))  # noqa: S301 - our parent's
        os.close(orders)
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        for target in (1, 2):
            os.dup2(output, target)
        os.close(output)
        program(command, environment)

    nowhere = os.open(os.devnull, os.O_WRONLY)
    supervisor = fork_supervised(wait, nowhere, grace, kept=(orders,))
    os.close(nowhere)
    os.close(orders)
    _HELD.append(Held(supervisor, ours))


def taken() -> Held | None:
    """Return what is held, once; None where it has ended meanwhile."""
    if not _HELD:
        return None
    held = _HELD.pop()
    if held.alive():
        return held
    held.close()
    return None


def let_go() -> None:
    """End what is held and was not taken."""
    while _HELD:
        _HELD.pop().close()


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _read(descriptor: int, length: int) -> bytes:
    data = b""
    while len(data) < length:
        more = os.read(descriptor, length - len(data))
        if not more:
            raise SystemExit(0)  # the parent let go of it
        data += more
    return data
