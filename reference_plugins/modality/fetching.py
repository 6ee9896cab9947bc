# SPDX-License-Identifier: Apache-2.0
"""Fetching what a URL names, for somebody who may be trying to use this server as theirs.

Whatever a URL says, the address is looked up and judged at the one place where a connection is
made, so a redirect is judged like the first URL, and a name whose address changes between
two look-ups gains nothing. Time is counted over the whole fetch: a peer that sends a byte
now and then would never meet a limit for each read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import httpcore
import httpx

from reference_plugins.modality.addresses import public_addresses, resolve
from reference_plugins.modality.errors import InputError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

    from reference_plugins.modality.addresses import Resolver

REDIRECTS = frozenset({301, 302, 303, 307, 308})
OK = 200
PORTS = range(1, 2**16)


@attrs.frozen
class Fetcher:
    """What may be fetched, and from where.

    Tests and deployments with a network of their own give another `resolver` or `network`;
    the network is told addresses, never names. Proxies of the environment are not used:
    they would look names up by themselves.
    """

    max_seconds: float = 20.0  #: for the whole fetch, redirects included; the resolver's not
    max_redirects: int = 3
    schemes: frozenset[str] = frozenset({"http", "https"})
    domains: frozenset[str] | None = None  #: the only hosts to fetch from; None: any public one
    resolver: Resolver = resolve
    network: httpcore.NetworkBackend = attrs.field(factory=httpcore.SyncBackend)
    ssl_context: ssl.SSLContext | None = None  #: None: the authorities that certifi lists

    def fetch(self, url: str, *, max_bytes: int) -> bytes:
        """Return the body behind a URL.

        Raises:
            InputError: a scheme, host or address that is not allowed; a body that is too large,
                takes too long or is compressed; an answer other than 200.

        """
        deadline = time.monotonic() + self.max_seconds
        network = _PublicNetwork(self.network, self.resolver, deadline)
        target = self._allowed(url)
        try:
            # A pool for each fetch: a connection kept for later would serve another user.
            with httpcore.ConnectionPool(self.ssl_context, network_backend=network) as pool:
                for _ in range(self.max_redirects + 1):
                    answer = self._get(pool, target, max_bytes)
                    if isinstance(answer, bytes):
                        return answer
                    if target.scheme == "https" and answer.scheme == "http":
                        raise InputError(f"{target.host!r} redirects from https to http")
                    target = answer
        except httpcore.TimeoutException as error:
            raise InputError(
                f"fetching from {target.host!r} took more than {self.max_seconds:g} seconds"
            ) from error
        except (httpcore.NetworkError, httpcore.ProtocolError) as error:
            reason = str(error) or type(error).__name__
            raise InputError(f"fetching from {target.host!r} failed: {reason[:200]}") from error
        raise InputError(f"more than {self.max_redirects} redirects, lately to {target.host!r}")

    def _allowed(self, url: str | httpx.URL) -> httpx.URL:
        """Return a URL that may be fetched, as far as its text tells."""
        try:
            target = httpx.URL(url)
        except (httpx.InvalidURL, TypeError, ValueError) as error:
            raise InputError(f"not a URL: {str(url)[:100]!r}") from error
        if target.scheme not in self.schemes:
            allowed = ", ".join(sorted(self.schemes))
            raise InputError(
                f"URLs of scheme {target.scheme!r} are not fetched, only those of {allowed}"
            )
        if target.userinfo:
            raise InputError("a URL with a user name or a password is not fetched")
        if not target.host:
            raise InputError(f"a URL without a host: {str(url)[:100]!r}")
        if target.port is not None and target.port not in PORTS:
            raise InputError(f"not a URL: there is no port {target.port}")
        if self.domains is not None and target.host not in self.domains:
            raise InputError(f"host {target.host!r} is not among those to fetch from")
        return target

    def _get(
        self, pool: httpcore.ConnectionPool, target: httpx.URL, max_bytes: int
    ) -> bytes | httpx.URL:
        """Return the body behind a URL, or where the answer redirects to."""
        headers = [
            (b"Host", target.netloc),
            (b"Accept", b"*/*"),
            # A small compressed body may be a large one.
            (b"Accept-Encoding", b"identity"),
            (b"Connection", b"close"),
        ]
        location = httpcore.URL(
            scheme=target.raw_scheme,
            host=target.raw_host,
            port=target.port,
            target=target.raw_path,
        )
        timeouts = dict.fromkeys(("connect", "read", "write", "pool"), self.max_seconds)
        with pool.stream(
            "GET", location, headers=headers, extensions={"timeout": timeouts}
        ) as response:
            said = {name.lower(): value for name, value in response.headers}
            if response.status in REDIRECTS and b"location" in said:
                return self._allowed(_joined(target, said[b"location"]))
            if response.status != OK:
                raise InputError(f"{target.host!r} answers with status {response.status}")
            if said.get(b"content-encoding", b"identity").lower() != b"identity":
                raise InputError(f"{target.host!r} sends a compressed body, which is not read")
            length = said.get(b"content-length", b"")
            if length.isdigit() and int(length) > max_bytes:
                raise InputError(
                    f"{target.host!r} sends {int(length)} bytes, of which {max_bytes} may be"
                )
            body = bytearray()
            for chunk in response.iter_stream():
                body += chunk
                if len(body) > max_bytes:
                    raise InputError(f"{target.host!r} sends more than {max_bytes} bytes")
            return bytes(body)


def _joined(target: httpx.URL, location: bytes) -> httpx.URL:
    """Return where an answer redirects to."""
    try:
        return target.join(location.decode("ascii"))
    except (httpx.InvalidURL, ValueError) as error:
        raise InputError(f"{target.host!r} redirects to something that is no URL") from error


@attrs.frozen
class _PublicNetwork(httpcore.NetworkBackend):
    """Connects to public addresses, until a deadline."""

    network: httpcore.NetworkBackend
    resolver: Resolver
    deadline: float

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        """Connect to the first address of a host that answers, if all of them are public."""
        refused: httpcore.ConnectError | None = None
        for address in public_addresses(host, self.resolver):
            try:
                stream = self.network.connect_tcp(
                    address,
                    port,
                    timeout=_remaining(self.deadline, httpcore.ConnectTimeout),
                    local_address=local_address,
                    socket_options=socket_options,
                )
            except httpcore.ConnectError as error:
                refused = error
            else:
                return _HastyStream(stream, self.deadline)
        raise refused or httpcore.ConnectError("no address")


@attrs.frozen
class _HastyStream(httpcore.NetworkStream):
    """A connection whose every read and write ends at the same deadline."""

    stream: httpcore.NetworkStream
    deadline: float

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self.stream.read(max_bytes, _remaining(self.deadline, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self.stream.write(buffer, _remaining(self.deadline, httpcore.WriteTimeout))

    def close(self) -> None:
        self.stream.close()

    def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,
    ) -> httpcore.NetworkStream:
        # The certificate is still checked against the name in the URL, not the address.
        secure = self.stream.start_tls(
            ssl_context, server_hostname, _remaining(self.deadline, httpcore.ConnectTimeout)
        )
        return _HastyStream(secure, self.deadline)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401  # httpcore's signature
        return self.stream.get_extra_info(info)


def _remaining(deadline: float, timeout: type[httpcore.TimeoutException]) -> float:
    """Return the seconds until a deadline, or raise the timeout that its passing is."""
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise timeout
    return seconds
