# SPDX-License-Identifier: Apache-2.0
"""Descriptors of a process that a plugin opens by a client's number, and closes with that.

``open`` takes a number for a descriptor: what a client sends as one then names any file, pipe or
socket of the server.
"""

from __future__ import annotations

import fcntl
import gc
import os
import resource
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

from conformance.watching.interruption import innermost

#: The least number of a copy, beyond those that are opened as a rule; fewer where few may be open.
FIRST = 512

#: What every program that is started has: input, output and errors.
STANDARD = range(3)


def open_here() -> dict[int, str]:
    """Return what this process has open, as the system names it; nothing where none does."""
    found = {}
    folder = Path("/proc/self/fd")
    for entry in folder.iterdir() if folder.is_dir() else ():
        with suppress(OSError):  # the folder itself was open while it was listed
            found[int(entry.name)] = str(entry.readlink())
    return found


@attrs.define
class Descriptors:
    """Those that were open in this process, and copies of them in case that one is closed."""

    _path: str | None  #: the file of the plugin
    _copies: dict[int, int]
    #: Those that were opened by their number, and where.
    _opened: dict[int, str | None] = attrs.field(init=False, factory=dict)

    @classmethod
    def watched(cls, path: str | None) -> Descriptors:
        """Watch for those that are open now, as long as this process lives."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        first = FIRST if most == resource.RLIM_INFINITY else min(FIRST, most // 2)
        copies = {}
        for number in open_here():
            with suppress(OSError):  # another thread has closed it
                copies[number] = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, first)
        made = cls(path, copies)
        sys.addaudithook(made._hear)
        return made

    @contextmanager
    def kept(self, stop: Callable[[str], Exception]) -> Iterator[None]:
        """Open again what the block opened by its number and closed, and stop at the first."""
        self._opened.clear()
        try:
            yield
        finally:
            if (lost := self._given_back()) is not None:
                number, place = lost
                at = f" at {place}" if place else ""
                raise stop(
                    f"closes file descriptor {number}, which it did not open: open(){at} takes a "
                    "number for a descriptor, and so a client closes any file or socket of the "
                    "server"
                )

    def _given_back(self) -> tuple[int, str | None] | None:
        """Open again what is lost; return the first of them and where it was opened, or None."""
        if not self._opened:
            return None
        gc.collect()  # what is in cycles is closed when they are
        lost = {number: place for number, place in self._opened.items() if self._lost(number)}
        for number in lost:
            os.dup2(self._copies[number], number, inheritable=number in STANDARD)
        return next(iter(lost.items()), None)

    def _lost(self, number: int) -> bool:
        try:
            return not os.path.samestat(os.fstat(number), os.fstat(self._copies[number]))
        except OSError:
            return True

    def _hear(self, event: str, arguments: tuple[object, ...]) -> None:
        """Note what is opened by a number that is still of what was open before."""
        if event != "open" or not isinstance(number := arguments[0], int):
            return
        if number in self._copies and not self._lost(number):
            self._opened[int(number)] = innermost(_stack(), self._path)


def _stack() -> Iterator[tuple[str, int]]:
    """Yield file and line of what is being called, the innermost first."""
    for frame, line in traceback.walk_stack(sys._getframe()):  # noqa: SLF001 - there is no other
        yield frame.f_code.co_filename, line
