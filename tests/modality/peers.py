# SPDX-License-Identifier: Apache-2.0
"""A server on this machine that plays any host of the internet, and misbehaves on demand."""

from __future__ import annotations

import shutil
import socket
import ssl
import subprocess
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs
import httpcore
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

PUBLIC = "93.184.215.14"


@attrs.frozen
class Rerouted(httpcore.NetworkBackend):
    """Connects to one port of this machine, whatever address it is told, and keeps the addresses.

    What stands above it cannot tell: sockets, time and bytes are real.
    """

    port: int
    told: list[str] = attrs.field(factory=list)

    def connect_tcp(
        self,
        host: str,
        port: int,  # noqa: ARG002  # the other port, of the host that is played
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the server of the test."""
        self.told.append(host)
        return httpcore.SyncBackend().connect_tcp(
            "127.0.0.1", self.port, timeout, local_address, socket_options
        )


@contextmanager
def serving(
    answer: Callable[[socket.socket, bytes], None], *, flags: int = 0
) -> Iterator[Rerouted]:
    """Serve connections with a function that is given each of them and its request.

    The request is what `recv` gives at once, with the flags of `recv`.
    """
    with socket.create_server(("127.0.0.1", 0)) as listener:
        stopped = threading.Event()

        def serve() -> None:
            while not stopped.is_set():
                connection, _ = listener.accept()
                with connection:
                    asked = connection.recv(65_536, flags)
                    if not stopped.is_set():
                        try:
                            answer(connection, asked)
                        except OSError:
                            continue  # the client has had enough, which is what is tested

        port = listener.getsockname()[1]
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield Rerouted(port)
        finally:
            stopped.set()
            socket.create_connection(("127.0.0.1", port)).close()
            thread.join(5)


def certified(host: str, folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return what a server needs to prove to be a host, and what a client needs to believe it."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed, which makes the certificate")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    options = f"req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN={host}".split()
    options += [
        "-addext",
        f"subjectAltName=DNS:{host}",
        "-keyout",
        str(key),
        "-out",
        str(certificate),
    ]
    subprocess.run([openssl, *options], check=True, capture_output=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key)
    return server, ssl.create_default_context(cafile=certificate)


def said(status: str, body: bytes = b"", **headers: str) -> bytes:
    """Return an answer as it goes over the wire."""
    headers = {"Content-Length": str(len(body))} | {
        name.replace("_", "-"): value for name, value in headers.items()
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {status}\r\n{lines}\r\n".encode() + body
