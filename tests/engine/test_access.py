# SPDX-License-Identifier: Apache-2.0
"""How clients reach servers that somebody else runs."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import pytest

from conformance.engine import access
from conformance.engine.access import Access
from conformance.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHERS = "http://gateway.example/vllm"


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget what other tests have told of servers."""
    monkeypatch.setattr(access, "_known", {})
    monkeypatch.delenv(access.API_KEY, raising=False)


def _settings(*headers: tuple[str, str], load: int = 8) -> Settings:
    return Settings(targets=("x:Y",), server_headers=headers, server_load=load)


def test_a_header_goes_before_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable of the SDK is taken where nothing else is said."""
    monkeypatch.setenv(access.API_KEY, "from-the-environment")
    access.know(OTHERS, access.of(_settings()))
    assert access.headers(OTHERS) == {"Authorization": "Bearer from-the-environment"}

    access.know(OTHERS, access.of(_settings(("Authorization", "Bearer said"), ("X-Team", "a"))))
    assert access.headers(OTHERS) == {"Authorization": "Bearer said", "X-Team": "a"}


def test_a_key_goes_to_the_server_it_is_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers of our own hear nothing of it."""
    monkeypatch.setenv(access.API_KEY, "secret")
    access.know(OTHERS, access.of(_settings()))

    assert access.headers("http://127.0.0.1:8000") == {"Authorization": "Bearer none"}


def test_clients_carry_the_headers() -> None:
    """The SDK and plain REST send the same, whatever the scheme of the key is."""
    access.know(OTHERS, Access({"Authorization": "Basic dTpw", "X-Team": "a"}))

    sdk = access.blocking_sdk(OTHERS, 5.0)
    with access.rest(OTHERS, 5.0) as rest:
        for sent in (sdk.default_headers, rest.headers):
            assert (sent["Authorization"], sent["X-Team"]) == ("Basic dTpw", "a")
    sdk.close()


@pytest.mark.parametrize(("known", "most"), [(True, 3), (False, 20)])
async def test_requests_wait_for_one_another(*, known: bool, most: int) -> None:
    """A server that serves others gets a few at a time; one of our own gets all."""
    if known:
        access.know(OTHERS, Access(at_once=3))
    under_way = highest = 0

    async def request(number: int) -> int:
        nonlocal under_way, highest
        under_way += 1
        highest = max(highest, under_way)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        under_way -= 1
        return number

    assert await access.gather(OTHERS, [request(n) for n in range(20)]) == list(range(20))
    assert highest == most


class _Empty(BaseHTTPRequestHandler):
    """Answers with an empty list."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"data": []}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def own() -> Iterator[str]:
    """Serve on the loopback, and give the address."""
    with HTTPServer(("127.0.0.1", 0), _Empty) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("known", [False, True])
async def test_no_proxy_leads_to_the_loopback(
    own: str, monkeypatch: pytest.MonkeyPatch, *, known: bool
) -> None:
    """Companies set proxies for the world, and often no exception."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")  # nobody is there
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    if known:
        access.know(own, Access())

    with access.rest(own, 5.0) as rest, access.blocking_sdk(own, 5.0) as sdk:
        assert rest.get(f"{own}/v1/models").json() == {"data": []}
        assert sdk.models.list().data == []
    async with access.coroutines(own, 5.0) as rest, access.sdk(own, 5.0) as sdk:
        assert (await rest.get(f"{own}/v1/models")).json() == {"data": []}
        assert (await sdk.models.list()).data == []


def test_a_proxy_may_lead_to_servers_elsewhere() -> None:
    """It may be the only way to them."""
    access.know(OTHERS, Access())

    assert access.proxied(OTHERS)


def test_commands_name_variables_instead_of_secrets() -> None:
    """A `curl` line can be published."""
    access.know(OTHERS, Access({"Authorization": "Bearer secret", "X-Team": "hidden"}))

    sent = "/v1/x -H 'Content-Type: application/json' -d '{}'"
    assert access.curl(OTHERS, "/v1/x", "{}") == (
        f'curl -H "Authorization: Bearer $OPENAI_API_KEY" -H "X-Team: $X_TEAM" {OTHERS}{sent}'
    )
    own = "http://127.0.0.1:8000"
    assert access.curl(own, "/v1/x", "{}") == f"curl {own}{sent}"


def test_what_is_said_of_a_run_holds_no_secret() -> None:
    """Neither settings nor what is known of a server print their headers."""
    settings = _settings(("Authorization", "Bearer secret"))

    assert "secret" not in f"{settings} {access.of(settings)}"
