# SPDX-License-Identifier: Apache-2.0
"""How clients reach a server: what each request to one of somebody else's carries, and how many.

Servers of our own need nothing and bear everything.  What is known of others is kept by address,
since clients of all kinds are made from an address.
"""

from __future__ import annotations

import asyncio
import os
import shlex
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import attrs

if TYPE_CHECKING:
    import ssl
    from collections.abc import Coroutine, Mapping, Sequence

    import httpx
    import openai

    from conformance.settings import Settings

T = TypeVar("T")

#: The header that gateways and ``vllm serve --api-key`` ask for.
AUTHORIZATION = "Authorization"

#: What no proxy leads to.
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})

#: The variable in which the OpenAI SDK and ``vllm bench serve`` look for a key.
API_KEY = "OPENAI_API_KEY"


@attrs.frozen
class Access:
    """What requests to a server carry, and how many may be under way at the same time."""

    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)  #: may hold secrets
    at_once: int | None = None


_known: dict[str, Access] = {}


def of(settings: Settings) -> Access:
    """Return how the server of ``--server-url`` is reached."""
    headers = dict(settings.server_headers)
    if AUTHORIZATION not in headers and (key := os.environ.get(API_KEY)):
        headers[AUTHORIZATION] = f"Bearer {key}"
    return Access(headers, settings.server_load)


def know(url: str, access: Access) -> None:
    """Remember how the server at an address is reached."""
    _known[url] = access


def headers(url: str) -> dict[str, str]:
    """Return what each request to the server at an address carries."""
    return {AUTHORIZATION: "Bearer none", **_access(url).headers}


def at_once(url: str, wanted: int) -> int:
    """Return how many of the requests that are wanted at the same time may be under way."""
    return min(wanted, _access(url).at_once or wanted)


async def gather(url: str, requests: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await requests to the server at an address, as many at a time as it may get."""
    room = asyncio.Semaphore(at_once(url, len(requests)) or 1)

    async def one(request: Coroutine[Any, Any, T]) -> T:
        async with room:
            return await request

    return list(await asyncio.gather(*map(one, requests)))


def sdk(url: str, seconds: float) -> openai.AsyncOpenAI:
    """Return a client of the OpenAI SDK that waits so many seconds for each answer."""
    import openai

    http = openai.DefaultAsyncHttpxClient(verify=tls(url), trust_env=proxied(url))
    return openai.AsyncOpenAI(http_client=http, **_of_sdk(url, seconds))


def blocking_sdk(url: str, seconds: float) -> openai.OpenAI:
    """Return a client of the OpenAI SDK without coroutines."""
    import openai

    http = openai.DefaultHttpxClient(verify=tls(url), trust_env=proxied(url))
    return openai.OpenAI(http_client=http, **_of_sdk(url, seconds))


def rest(url: str, seconds: float) -> httpx.Client:
    """Return a client for plain REST."""
    import httpx

    return httpx.Client(**_of_rest(url, seconds))


def coroutines(url: str, seconds: float) -> httpx.AsyncClient:
    """Return a client for plain REST with coroutines."""
    import httpx

    return httpx.AsyncClient(**_of_rest(url, seconds))


def elsewhere(url: str) -> bool:
    """Tell whether somebody else started the server of an address."""
    return url in _known


def proxied(url: str) -> bool:
    """Tell whether a proxy that is set for the world may lead to the server of an address."""
    try:
        here = urlsplit(url).hostname in _LOOPBACK
    except ValueError:  # it is no address: who asks for it is told
        here = False
    return elsewhere(url) and not here


def tls(url: str) -> ssl.SSLContext:
    """Return how a client of an address trusts servers.

    Reading the certificates of the world takes every client a tenth of a second.  For servers of
    our own, which have no TLS, none is read, and none is trusted; for others they are read once.
    """
    return _trusting() if elsewhere(url) else _trusting_nobody()


@cache
def _trusting() -> ssl.SSLContext:
    import httpx

    return httpx.create_ssl_context()


@cache
def _trusting_nobody() -> ssl.SSLContext:
    import ssl

    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


def curl(url: str, path: str, body: str) -> str:
    """Return the command that posts a body of JSON to an address, with variables for secrets."""
    named = _access(url).headers
    words = [
        f'-H "{name}: Bearer ${API_KEY}"'
        if name == AUTHORIZATION
        else f'-H "{name}: ${name.upper().replace("-", "_")}"'
        for name in named
    ]
    sent = [f"{url}{path}", "-H 'Content-Type: application/json'", f"-d {shlex.quote(body)}"]
    return " ".join(["curl", *words, *sent])


def _access(url: str) -> Access:
    return _known.get(url, Access())


def _of_sdk(url: str, seconds: float) -> dict[str, Any]:
    carried = headers(url)
    return {
        "base_url": f"{url}/v1",
        "api_key": carried[AUTHORIZATION].removeprefix("Bearer "),
        "default_headers": carried,
        "max_retries": 0,
        "timeout": seconds,
    }


def _of_rest(url: str, seconds: float) -> dict[str, Any]:
    import httpx

    return {
        "verify": tls(url),
        "headers": headers(url),
        "timeout": seconds,
        "limits": httpx.Limits(max_connections=None),  # `gather` and thread pools bound them
        "trust_env": proxied(url),
    }
