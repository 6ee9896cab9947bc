# SPDX-License-Identifier: Apache-2.0
"""Processes that vLLM spawns, forked from one that has imported vLLM and nothing of the plugin.

``vllm serve`` spawns its engine: a new interpreter, which imports all of vLLM once more.  A fork
of a process that was forked before the plugin was imported knows as little of the front end, and
is there at once.  Python's own fork server forks it, and hands over what a spawned process gets.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from multiprocessing import connection, context, forkserver, popen_forkserver, spawn
from typing import Any

import attrs

from conformance.coverage import lines

#: What a new process needs to be like its parent.
Prepared = dict[str, Any]


def fork_instead() -> None:
    """Have processes that this one spawns forked from it as it is now.

    To be called before anything of a plugin is imported, in a process without other threads.
    Only what Python itself would keep of a fork server that it starts is set.
    """
    address: str = connection.arbitrary_address("AF_UNIX")  # type: ignore[attr-defined] # typeshed lacks it
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        alive, ours = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(ours)
            try:
                forkserver.main(listener.detach(), alive, [])
            finally:
                os._exit(0)
        os.close(alive)
    server: Any = forkserver.ensure_running.__self__  # type: ignore[attr-defined] # a bound method
    server._forkserver_address = address
    server._forkserver_alive_fd = ours
    server._forkserver_pid = pid
    spawned: Any = context.SpawnProcess
    spawned._Popen = staticmethod(popen_forkserver.Popen)
    spawning: Any = spawn
    spawning.get_preparation_data = _with_environment(spawn.get_preparation_data)


def _with_environment(prepare: Callable[[str], Prepared]) -> Callable[[str], Prepared]:
    """Return what prepares a new process: it gets the variables that its parent has by then."""

    def prepared(name: str) -> Prepared:
        return {**prepare(name), "environment": _Environment(dict(os.environ))}

    return prepared


@attrs.frozen
class _Environment:
    """Variables that are set where this is unpickled: the first that a new process does."""

    variables: Mapping[str, str]

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _begin, (dict(self.variables),)


def _begin(variables: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(variables)
    lines.begin()
