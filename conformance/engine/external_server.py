# SPDX-License-Identifier: Apache-2.0
"""A vLLM server that somebody else runs, and how to ask any server how it is."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, final

from conformance.engine import access

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

_POLL = 0.1  # seconds between two questions
_PATIENCE = 2.0  # seconds a server has to answer one


class ServerFailed(Exception):
    """The server died, did not start in time, or does not answer.

    Its text is one sentence with the cause, as far as the log tells it, and where the log is.
    """


class HostTrouble(ServerFailed):
    """The server runs and is not healthy in time, or there is no room for it."""


@final
class ExternalServer:
    """A vLLM server that somebody else runs; make one with `external`."""

    def __init__(self, url: str, client: httpx.Client) -> None:
        """Remember the address; nothing is sent yet."""
        self.url = url
        self._client = client

    @property
    def model_name(self) -> str:
        """The first model that the server lists.

        Raises:
            ServerFailed: if it lists none.
        """
        import httpx

        address = f"{self.url}/v1/models"
        try:
            answer = self._client.get(address)
            answer.raise_for_status()
            return str(answer.json()["data"][0]["id"])
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError) as error:
            raise ServerFailed(f"no model name could be read from {address}: {error}") from error

    def healthy(self) -> bool:
        """Whether the server answers that it is healthy, asked once."""
        return self._trouble() is None

    def wait_healthy(self, timeout: float = 5.0) -> None:
        """Return when the server is healthy.

        Raises:
            ServerFailed: if it is not within *timeout* seconds.
        """
        deadline = time.monotonic() + timeout
        while reason := self._trouble():
            if time.monotonic() > deadline:
                raise ServerFailed(
                    f"no healthy vLLM server at {self.url} within {timeout:g} s: {reason}"
                )
            time.sleep(_POLL)

    def failure(self, *, within: float = 0.0) -> str | None:
        """Return a sentence if the server stops being healthy *within* seconds, else None."""
        deadline = time.monotonic() + within
        while (reason := self._trouble()) is None and time.monotonic() < deadline:
            time.sleep(_POLL)
        return reason and f"the vLLM server at {self.url} is not healthy: {reason}"

    def stop(self) -> None:
        """Leave the server alone: it is not ours."""

    def _trouble(self) -> str | None:
        reason = trouble(self._client, f"{self.url}/health")
        # A gateway may pass on the API alone.
        if reason == _status_sentence(404):
            reason = trouble(self._client, f"{self.url}/v1/models")
        return reason

    def __enter__(self) -> ExternalServer:
        """Return the server itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the server alone."""


def external(url: str, how: access.Access | None = None) -> ExternalServer:
    """Return the server at *url*, with or without ``/v1``, which may not be reachable yet.

    Clients that are made later for its address reach it as *how* says, too.
    """
    address = url.rstrip("/").removesuffix("/v1")
    how = how or access.Access()
    access.know(address, how)
    return ExternalServer(address, open_client(address, how.headers))


def open_client(url: str, headers: Mapping[str, str] | None = None) -> httpx.Client:
    """Return a client for a server elsewhere, or for one of our own."""
    import httpx

    return httpx.Client(
        verify=access.tls(url),
        headers=headers,
        timeout=_PATIENCE,
        follow_redirects=True,
        trust_env=access.proxied(url),
        # No connection is kept, so nobody has to close the client.
        limits=httpx.Limits(max_keepalive_connections=0),
    )


def trouble(client: httpx.Client, address: str) -> str | None:
    """Return why *address* does not answer with status 200, or None if it does."""
    import httpx

    try:
        status = client.get(address).status_code
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__
    return None if status == httpx.codes.OK else _status_sentence(status)


def _status_sentence(status: int) -> str:
    return f"it answered with status {status}"
