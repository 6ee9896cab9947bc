# SPDX-License-Identifier: Apache-2.0
"""A process of another trial that runs errands, where this one's may use a GPU."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from multiprocessing import connection as connections
from multiprocessing.connection import Connection
from typing import Any

import attrs

from conformance.watching.untouched import Ended, Untouched

#: Seconds in which that process has imported the plugin, and how often it is looked for.
_PATIENCE, _PAUSE = 180.0, 0.1


@attrs.frozen
class Elsewhere:
    """Where errands are sent to: the address of a socket."""

    address: str

    def run(self, errand: object) -> Any:  # noqa: ANN401 - what the errand gives
        """Have an errand run, as :meth:`Untouched.run` does.

        Raises:
            Ended: its process ended without an answer.

        """
        try:
            with self._reached() as connection:
                connection.send(errand)
                result, how = connection.recv()
        except (EOFError, OSError):
            raise Ended("what simulates on the CPU ended with it") from None
        if how is not None:
            raise Ended(how)
        return result

    def begin(self, errands: Iterable[object]) -> None:
        """Do nothing: it runs errands of others, too."""

    def close(self) -> None:
        """Do nothing, as well."""

    def _reached(self) -> Connection:
        deadline = time.monotonic() + _PATIENCE
        while True:
            ours = socket.socket(socket.AF_UNIX)
            try:
                ours.connect(self.address)
            except OSError:
                ours.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return Connection(ours.detach())


def serve(address: str, untouched: Untouched, until: Connection) -> None:
    """Run errands that come to an address, one at a time, until the other end says the end."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen()
        while until not in connections.wait([until, listener]):
            with Connection(listener.accept()[0].detach()) as theirs, suppress(EOFError, OSError):
                theirs.send(_answered(untouched, theirs.recv()))


def _answered(untouched: Untouched, errand: object) -> tuple[Any, str | None]:
    """Return what an errand gives, or how its process ended."""
    try:
        return untouched.run(errand), None
    except Ended as error:
        return None, error.how
