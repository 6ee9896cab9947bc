# SPDX-License-Identifier: Apache-2.0
"""A process in which nothing has been done with a plugin yet, and which runs errands.

It is forked before the plugin is first touched, and waits. Whatever a trial does to the class
meanwhile has not happened there, and what one errand does, no other one feels.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

import attrs

#: Exit status of a process that has done its errand; a plugin may end it with any usual one.
_ANSWERED = 97

#: Errands by name, for those that are not named ``module:function``; generations add theirs.
ERRANDS: dict[str, Callable[[Any, Any], Any]] = {}


class Ended(EOFError):
    """The process of an errand ended without an answer."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the process of an errand ended: {how}")
        self.how = how


class Errands(Protocol):
    """Whatever runs errands where nothing has been done with the plugin."""

    def run(self, errand: object) -> Any:  # noqa: ANN401 - what the errand gives
        """Run an errand; raises :class:`Ended` if its process ended without an answer."""

    def close(self) -> None:
        """Have it end with its owner."""


@attrs.define
class Untouched:
    """A process in which nothing has been done with the plugin yet; ends when its owner does."""

    _connection: Connection
    _pid: int

    @classmethod
    def fork(cls, plugin: Any) -> Untouched:  # noqa: ANN401 - a class, or what was made of one
        """Fork the process; it waits for errands."""
        mine, theirs = multiprocessing.Pipe()
        if (pid := os.fork()) == 0:
            status = 1
            try:
                mine.close()
                _serve(theirs, plugin)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        return cls(mine, pid)

    def run(self, errand: object) -> Any:  # noqa: ANN401 - what the errand gives
        """Run an errand in a process of its own, forked from the untouched one.

        Raises:
            Ended: that process ended without an answer.

        """
        try:
            self._connection.send(errand)
            result, status = self._connection.recv()
        except (EOFError, OSError):
            raise Ended("the untouched one ended with it") from None
        if status != _ANSWERED:
            how = "killed by " + signal.Signals(-status).name if status < 0 else f"status {status}"
            raise Ended(how)
        return result

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        # Other forks of this process have a copy of the connection: nobody hears that it is closed.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(connection: Connection, plugin: Any) -> None:  # noqa: ANN401 - as above
    with suppress(EOFError):
        while True:
            errand = connection.recv()
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    connection.send((_function(errand.what)(plugin, errand), _ANSWERED))
                    status = _ANSWERED
                except BaseException:
                    traceback.print_exc()  # the owner hears only that there is no answer
                    raise
                finally:
                    os._exit(status)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status != _ANSWERED:
                connection.send((None, status))  # errands to come are none the worse for it


def _function(what: str) -> Callable[[Any, Any], Any]:
    """Return what does an errand: one that is known, or ``module:function``."""
    if what in ERRANDS:
        return ERRANDS[what]
    module, _, name = what.partition(":")
    found: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), name)
    return found
