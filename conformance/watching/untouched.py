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
from collections.abc import Callable, Iterable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, Protocol

import attrs

#: Exit status of a process that has done its errand; a plugin may end it with any usual one.
_ANSWERED = 97

#: Errands by name, for those that are not named ``module:function``; generations add theirs.
ERRANDS: dict[str, Callable[[Any, Any], Any]] = {}


#: What an errand gave, and the status with which its process ended.
_Answer = tuple[Any, int]


class Ended(EOFError):
    """The process of an errand ended without an answer."""

    def __init__(self, how: str) -> None:
        super().__init__(f"the process of an errand ended: {how}")
        self.how = how


class Errands(Protocol):
    """Whatever runs errands where nothing has been done with the plugin."""

    def run(self, errand: object) -> Any:  # noqa: ANN401 - what the errand gives
        """Run an errand; raises :class:`Ended` if its process ended without an answer."""

    def begin(self, errands: Iterable[object]) -> None:
        """Have errands run meanwhile, where that can be: once, and to be :meth:`run` later."""

    def close(self) -> None:
        """Have it end with its owner."""


@attrs.frozen
class _Several:
    """Errands that are run one after the other."""

    errands: tuple[object, ...]


@attrs.define
class Untouched:
    """A process in which nothing has been done with the plugin yet; ends when its owner does."""

    _connection: Connection
    _later: Connection  #: on which the answers of errands come that were begun
    _pid: int
    #: Errands that were begun, in the order of their answers, and the answers by then.
    _begun: list[object] = attrs.field(init=False, factory=list)
    _heard: list[tuple[object, _Answer]] = attrs.field(init=False, factory=list)

    @classmethod
    def fork(cls, plugin: Any) -> Untouched:  # noqa: ANN401 - a class, or what was made of one
        """Fork the process; it waits for errands."""
        mine, theirs = multiprocessing.Pipe()
        heard, told = multiprocessing.Pipe(duplex=False)
        if (pid := os.fork()) == 0:
            status = 1
            try:
                mine.close()
                heard.close()
                _serve(theirs, told, plugin)
                status = 0
            finally:
                os._exit(status)
        theirs.close()
        told.close()
        return cls(mine, heard, pid)

    def run(self, errand: object) -> Any:  # noqa: ANN401 - what the errand gives
        """Run an errand in a process of its own, forked from the untouched one.

        Raises:
            Ended: that process ended without an answer.

        """
        try:
            result, status = self._answer(errand)
        except (EOFError, OSError):
            raise Ended("the untouched one ended with it") from None
        if status != _ANSWERED:
            how = "killed by " + signal.Signals(-status).name if status < 0 else f"status {status}"
            raise Ended(how)
        return result

    def begin(self, errands: Iterable[object]) -> None:
        """Have errands run one after the other, while their owner does something else; once."""
        self._begun += (several := _Several(tuple(errands))).errands
        # What has ended is noticed when they are run.
        with suppress(OSError):
            self._connection.send(several)

    def _answer(self, errand: object) -> _Answer:
        """Return what an errand gives that was begun, or run it now."""
        while any(errand is begun for begun in self._begun):
            self._heard.append((self._begun.pop(0), self._later.recv()))
        for place, (known, answer) in enumerate(self._heard):
            if known is errand:
                del self._heard[place]
                return answer
        self._connection.send(errand)
        told: _Answer = self._connection.recv()
        return told

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._later.close()
        # Other forks of this process have a copy of the connection: nobody hears that it is closed.
        with suppress(ProcessLookupError, ChildProcessError):
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)


def _serve(connection: Connection, later: Connection, plugin: Any) -> None:  # noqa: ANN401 - a class, or what was made of one
    with suppress(EOFError):
        while True:
            wanted = connection.recv()
            if not isinstance(wanted, _Several):
                _run(connection, plugin, wanted)
                continue
            if os.fork() == 0:
                try:
                    for errand in wanted.errands:
                        _run(later, plugin, errand)
                finally:
                    os._exit(0)
            # If a plugin ends that process, its owner is to hear so.
            later.close()


def _run(connection: Connection, plugin: Any, errand: Any) -> None:  # noqa: ANN401 - a class, or what was made of one
    """Answer an errand from a process of its own."""
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
        connection.send((None, status))  # the next errands can still be run


def _function(what: str) -> Callable[[Any, Any], Any]:
    """Return what does an errand: one that is known, or ``module:function``."""
    if what in ERRANDS:
        return ERRANDS[what]
    module, _, name = what.partition(":")
    found: Callable[[Any, Any], Any] = getattr(importlib.import_module(module), name)
    return found
