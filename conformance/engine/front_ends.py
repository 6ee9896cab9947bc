# SPDX-License-Identifier: Apache-2.0
"""Which processes of a server take requests: the system alone decides who gets a connection."""

from __future__ import annotations

import contextlib
import threading

import attrs
import psutil

from conformance.engine.server import Server

#: Seconds between two looks: a connection of a crowd is open for longer.
_APART = 0.05


@attrs.define
class FrontEnds:
    """The processes of a server that were seen with a client."""

    server: Server
    seen: set[int] = attrs.field(factory=set)
    _over: threading.Event = attrs.field(factory=threading.Event)

    def look(self) -> None:
        """Note who has a client now."""
        with contextlib.suppress(psutil.Error):  # the server has ended
            first = psutil.Process(self.server.pid)
            for process in (first, *first.children(recursive=True)):
                with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                    for connection in process.net_connections("tcp"):
                        established = connection.status == psutil.CONN_ESTABLISHED
                        if established and connection.laddr.port == self.server.port:
                            self.seen.add(process.pid)

    def watch(self, count: int) -> None:
        """Look in the background until so many were seen, or :meth:`close`."""

        def look() -> None:
            while len(self.seen) < count and not self._over.wait(_APART):
                self.look()

        threading.Thread(target=look, daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._over.set()
