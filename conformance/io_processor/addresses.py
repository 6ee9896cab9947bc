# SPDX-License-Identifier: Apache-2.0
"""Addresses that a client names, of a server that takes connections and never says a word.

Whoever fetches from one and sets no time limit waits for ever, and with it the thread, or the event
loop, that others are served by.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import attrs

from conformance.inputs.places import changed, places
from conformance.io_processor.stock import fewer

#: Where the server listens, if it can: what messages quote is then the same each time.
PORT = 47_113

#: Requests that name an address, at most; words of the source that go beside it, at most, and
#: their length: what is fetched may have to be said elsewhere in the data.
MOST = 300
WORDS, LONGEST = 40, 24

#: Seconds after which a request that has reached the server is given up.
PATIENCE = 2.0


@attrs.frozen
class SilentServer:
    """A server that answers nothing, and the sockets of this process that are connected to it."""

    address: str
    _reached: list[socket.socket]

    @classmethod
    @contextmanager
    def listening(cls) -> Iterator[SilentServer | None]:
        """Have a server listen in this process, for its own sockets; None where none can."""
        server = _listening()
        if server is None:
            yield None
            return
        port = server.getsockname()[1]
        reached: list[socket.socket] = []
        with server, _connections(port, reached):
            yield cls(f"http://127.0.0.1:{port}/0", reached)

    @property
    def waited_for(self) -> bool:
        """Whether a socket is connected that has no time limit.

        An event loop's own sockets do not block, whatever a coroutine waits for.
        """
        return any(each.gettimeout() is None for each in self._reached)


def _listening() -> socket.socket | None:
    for port in (PORT, 0):  # other trials may be at it
        with suppress(OSError):
            return socket.create_server(("127.0.0.1", port))
    return None


@contextmanager
def _connections(port: int, reached: list[socket.socket]) -> Iterator[None]:
    """Keep the sockets of this process that connect to a port of its own."""
    patched: Any = socket.socket
    connect = patched.connect

    def watched(self: socket.socket, address: object) -> None:
        if isinstance(address, tuple) and address[1:2] == (port,):
            reached.append(self)
        connect(self, address)

    patched.connect = watched
    try:
        yield
    finally:
        del patched.connect


def naming(
    address: str, valid: Sequence[Any], keys: Sequence[str], words: Sequence[str]
) -> Iterator[Any]:
    """Yield requests that name an address: in place of each text, or under a key of their own.

    That stands beside the others, alone, or instead of one.  With an address in place of a text
    stands in turn each word of the plugin's source, as what says how the text is meant.
    """
    words = [word for word in dict.fromkeys(words) if 0 < len(word) <= LONGEST][:WORDS]
    return islice(_naming(address, valid, keys, words), MOST)


def _naming(
    address: str, valid: Sequence[Any], keys: Sequence[str], words: Sequence[str]
) -> Iterator[Any]:
    texts = [
        (data, [place for place, value in places(data) if isinstance(value, str)]) for data in valid
    ]
    for data, where in texts:
        for place in where:
            yield changed(data, place, address)
    whole = valid[0] if valid and isinstance(valid[0], dict) else None
    if whole is not None:
        absent = [key for key in dict.fromkeys((*keys, *words)) if key not in whole]
        yield from ({**whole, key: address} for key in absent)
        yield from ({key: address} for key in absent)
        for less in fewer(whole):
            yield from ({**less, key: address} for key in keys if key not in whole)
    for data, where in texts:
        for place in where:
            named = changed(data, place, address)
            for beside in where:
                if beside != place:
                    yield from (changed(named, beside, word) for word in words)
