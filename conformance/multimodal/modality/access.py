# SPDX-License-Identifier: Apache-2.0
"""A check of what a plugin reads by itself: nothing of this machine, and nobody behind it."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from socketserver import BaseRequestHandler, TCPServer
from typing import Any

from conformance.checking import checks
from conformance.findings import Finding, failed, passed
from conformance.multimodal.modality import media
from conformance.multimodal.modality.stock import given
from conformance.multimodal.modality.trial import Trial

PROXIES = ("http_proxy", "https_proxy", "all_proxy", "ftp_proxy")

#: This machine, as a client may write it; what stands first is what a person would write.
HOSTS = (
    "127.0.0.1",
    "localhost",
    "127.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "[::ffff:127.0.0.1]",
)

#: How a URL reaches a plugin.
_FORMS = (("", lambda url: url), (" in a mapping", lambda url: {"url": url}))


class _Server(TCPServer):
    """A local service that no client may reach: it answers every request with a file."""

    def __init__(self, content: bytes) -> None:
        super().__init__(("127.0.0.1", 0), BaseRequestHandler)
        self.visits = 0
        self._answer = b"HTTP/1.0 200 OK\r\nContent-Length: %d\r\n\r\n" % len(content) + content

    def finish_request(self, request: Any, _address: object) -> None:  # noqa: ANN401 - as socketserver has it
        self.visits += 1
        with suppress(OSError):
            request.settimeout(1)
            request.recv(65_536)
            request.sendall(self._answer)


@contextmanager
def _serving(content: bytes) -> Iterator[_Server]:
    """Serve a file on this machine within the block."""
    with _Server(content) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def _without_proxies() -> Iterator[None]:
    """Let nobody else be asked in the plugin's place."""
    kept = {name: os.environ.pop(name) for name in list(os.environ) if name.lower() in PROXIES}
    try:
        yield
    finally:
        os.environ.update(kept)


@checks("MM-58")
def private(trial: Trial) -> Finding:
    """A client's URL makes the plugin read no file, and connect to nothing, of this machine."""
    bench = trial.bench
    file = next((sample for sample in bench.good if sample.mime), None)
    content = file.make() if file else media.picture(9, 9)
    suffix = f".{(file.encoding if file else 'PNG').lower()}"
    plugin = bench.make()
    count = 0
    with _without_proxies(), tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        path = Path(folder, f"private{suffix}")
        path.write_bytes(content)
        for name, url in (("a file:// URL", path.as_uri()), ("the path of a file", str(path))):
            for how, form in _FORMS:
                count += 1
                if bench.serve(plugin, given(name, form(url))).good:
                    return failed(
                        f"{name}{how} was read, which names a file of this machine", count
                    )
        with _serving(content) as server:
            port = server.server_address[1]
            for host in HOSTS:
                for how, form in _FORMS:
                    count += 1
                    url = f"http://{host}:{port}/private{suffix}"
                    bench.serve(plugin, given("a URL", form(url)))
                    if server.visits:
                        return failed(
                            f"a URL{how} of host {host} made the plugin connect to this machine",
                            count,
                        )
            count += 1
            url = f"ftp://127.0.0.1:{port}/private{suffix}"
            bench.serve(plugin, given("a URL", url))
            if server.visits:
                return failed("an ftp:// URL made the plugin connect to this machine", count)
    return passed(count)
