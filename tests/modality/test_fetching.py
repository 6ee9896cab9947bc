# SPDX-License-Identifier: Apache-2.0
"""URLs of strangers: where they may lead, how much they may hold and how long they may take."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from modality.peers import PUBLIC, Rerouted, certified, said, serving
from reference_plugins.modality import Fetcher, ImagePlugin, InputError, MediaAccess
from reference_plugins.modality.addresses import is_public, public_addresses, resolve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NOWHERE = Rerouted(port=0)  #: a network that nothing may be asked of


def names(**known: Sequence[str]) -> Callable[[str], Sequence[str]]:
    """Return a resolver that knows the hosts `a.example` and so on, and others as public."""
    return lambda host: known.get(host.removesuffix(".example"), [PUBLIC])


def fetcher(network: Rerouted, **options: object) -> Fetcher:
    """Return a fetcher in a network of this machine."""
    defaults: dict[str, object] = {"resolver": names(), "max_seconds": 5.0}
    return Fetcher(network=network, **(defaults | options))  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.255.0.3",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",  # metadata, in most clouds
        "100.100.100.200",  # metadata, in Alibaba's
        "192.0.0.192",  # metadata, in Oracle's
        "168.63.129.16",  # the host, in Azure
        "0.0.0.0",  # noqa: S104  # nothing listens here
        "255.255.255.255",
        "224.0.0.1",
        "240.0.0.1",
        "198.18.0.1",
        "203.0.113.9",
        "::",
        "::1",
        "::127.0.0.1",
        "::ffff:127.0.0.1",
        "::ffff:7f00:1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b:1::7f00:1",
        "2002:7f00:1::",
        "2001:0:1::1",
        "2001:db8::1",
        "3fff::1",
        "fc00::1",
        "fd00:ec2::254",  # metadata, in Amazon's
        "fe80::1",
        "fe80::1%lo",
        "2606:4700::1%lo",
        "fec0::1",
        "ff02::1",
        "localhost",
        "",
    ],
)
def test_these_addresses_are_not_public(address: str) -> None:
    """Loopback, private, link-local, shared, reserved, and what carries one of them inside."""
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [PUBLIC, "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::"],
)
def test_these_addresses_are_public(address: str) -> None:
    """Hosts of the internet, over either protocol."""
    assert is_public(address)


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "0x7f.1", "0177.0.0.1", "127.1", "0", "[::1]", "017700000001"],
)
def test_other_ways_to_write_an_address_are_read(host: str) -> None:
    """Without asking the resolver, which on some systems would take them for names."""
    with pytest.raises(InputError, match="is not on the public internet"):
        public_addresses(host, lambda name: pytest.fail(f"{name} was looked up"))


def test_one_private_address_among_public_ones_refuses_the_host() -> None:
    """Which of them is connected to is up to whoever wrote the answer."""
    with pytest.raises(InputError, match=r"host 'mixed\.example' is not on the public internet"):
        public_addresses("mixed.example", names(mixed=[PUBLIC, "10.0.0.1"]))


def test_the_systems_resolver_gives_loopback_for_localhost() -> None:
    """So the name is refused like the address."""
    assert not any(is_public(address) for address in resolve("localhost"))


def test_a_body_is_fetched_from_the_address_that_was_judged() -> None:
    """The host is asked for by its name, and nobody looks the name up a second time."""
    requests = []

    def answer(connection: socket.socket, asked: bytes) -> None:
        requests.append(asked)
        connection.sendall(said("200 OK", b"pixels"))

    with serving(answer) as network:
        assert fetcher(network).fetch("http://a.example:81/x?y=1", max_bytes=6) == b"pixels"

    assert network.told == [PUBLIC]
    assert requests[0].startswith(b"GET /x?y=1 HTTP/1.1\r\nHost: a.example:81\r\n")
    assert b"Accept-Encoding: identity\r\n" in requests[0]


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/",
        "http://localhost.example/",
        "http://2130706433/",
        "http://0x7f.1:8000/v1/models",
        "http://[::1]/",
        "http://[::ffff:169.254.169.254]/latest/meta-data",
        "http://[fd00:ec2::254]/",
        "http://127。0。0。1/",
        "https://10.0.0.1/",
    ],
)
def test_no_connection_is_made_to_a_private_address(url: str) -> None:
    """However the address is written, and whatever name leads to it."""
    resolver = names(localhost=["127.0.0.1"])
    with pytest.raises(InputError, match="is not on the public internet"):
        fetcher(NOWHERE, resolver=resolver).fetch(url, max_bytes=10)

    assert NOWHERE.told == []


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("ftp://a.example/x", "URLs of scheme 'ftp' are not fetched, only those of http, https"),
        ("gopher://a.example/x", "scheme 'gopher' are not fetched"),
        ("//a.example/x", "scheme '' are not fetched"),
        ("picture.png", "scheme '' are not fetched"),
        ("http:///x", "a URL without a host"),
        ("http://user:secret@a.example/", "a URL with a user name or a password is not fetched"),
        ("http://a.example:99999/", "not a URL"),
        ("http://[::1/", "not a URL"),
        ("http://a.example/\0", "not a URL"),
    ],
)
def test_other_urls_are_refused_by_their_text(url: str, sentence: str) -> None:
    """Before anything is looked up."""
    with pytest.raises(InputError, match=sentence):
        fetcher(NOWHERE).fetch(url, max_bytes=10)


def test_a_redirect_is_judged_like_the_first_url() -> None:
    """A public host that points to a private one leads nowhere."""
    for location in ("http://inside.example/", "http://127.1/", "file:///etc/passwd", "//[::1]/"):
        answer = said("302 Found", Location=location)
        with serving(lambda peer, _, answer=answer: peer.sendall(answer)) as net:  # type: ignore[misc]
            careful = fetcher(net, resolver=names(inside=["192.168.0.7"]))
            with pytest.raises(InputError, match=r"not on the public internet|'file' are not"):
                careful.fetch("http://a.example/", max_bytes=10)

            assert net.told == [PUBLIC]


def test_a_name_that_changes_its_address_is_judged_again() -> None:
    """Public for the first URL, private for the redirect to itself: refused."""
    answers = iter([[PUBLIC], ["127.0.0.1"]])
    with serving(lambda peer, _: peer.sendall(said("307 T", Location="/again"))) as network:
        with pytest.raises(InputError, match="is not on the public internet"):
            fetcher(network, resolver=lambda _: next(answers)).fetch(
                "http://a.example", max_bytes=9
            )

        assert network.told == [PUBLIC]


def test_redirects_come_to_an_end() -> None:
    """Three are followed and a fourth is not."""
    with serving(lambda peer, _: peer.sendall(said("301 M", Location="/on"))) as network:
        with pytest.raises(InputError, match=r"more than 3 redirects, lately to 'a\.example'"):
            fetcher(network).fetch("http://a.example/", max_bytes=10)

        assert len(network.told) == 4


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (said("200 OK", b"1234567"), "sends 7 bytes, of which 6 may be"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 50_000, "sends more than 6 bytes"),
        (said("404 Not Found", b"?"), "answers with status 404"),
        (said("500 Oh", b"?"), "answers with status 500"),
        (said("302 Found"), "answers with status 302"),
        (said("302 Found", Location="http://[::1"), "redirects to something that is no URL"),
        (said("200 OK", b"small", Content_Encoding="gzip"), "sends a compressed body"),
        (said("200 OK", b"12", Content_Length="5"), "failed: "),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "failed: "),
        (b"", "failed: "),
    ],
)
def test_an_answer_of_another_kind_is_refused(answer: bytes, sentence: str) -> None:
    """With what is wrong about it."""
    with (
        serving(lambda peer, _: peer.sendall(answer)) as network,
        pytest.raises(InputError, match=sentence),
    ):
        fetcher(network).fetch("http://a.example/", max_bytes=6)


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n", b"x", id="body"),
        pytest.param(b"HTTP/1.1 200 OK\r\n", b"X: y\r\n", id="headers"),
        pytest.param(b"", b"", id="silence"),
    ],
)
def test_a_slow_peer_has_as_long_as_the_whole_fetch(start: bytes, drop: bytes) -> None:
    """A byte now and then would keep any limit on single reads from being met."""

    def answer(connection: socket.socket, asked: bytes) -> None:
        assert asked
        connection.sendall(start)
        connection.settimeout(0.05)
        for _ in range(200):
            try:
                connection.recv(1)
            except TimeoutError:
                connection.sendall(drop)
            else:
                return  # the client has gone

    with serving(answer) as network:
        started = time.monotonic()
        with pytest.raises(InputError, match=r"took more than 0\.4 seconds"):
            fetcher(network, max_seconds=0.4).fetch("http://a.example/", max_bytes=10_000)

        assert time.monotonic() - started < 5  # of ten


def test_hosts_can_be_named() -> None:
    """A deployment that fetches from its own bucket alone says so."""
    only = fetcher(NOWHERE, domains=frozenset({"bucket.example"}))
    with pytest.raises(InputError, match=r"'a\.example' is not among those to fetch from"):
        only.fetch("http://a.example/", max_bytes=10)


def test_a_certificate_has_to_be_that_of_the_name_in_the_url(tmp_path: Path) -> None:
    """Although the connection is made to an address; and by default, of a known authority."""
    at_the_host, trusting = certified("a.example", tmp_path)

    def answer(connection: socket.socket, asked: bytes) -> None:
        # The first bytes of the handshake are left where TLS finds them.
        assert asked
        with at_the_host.wrap_socket(connection, server_side=True) as secure:
            secure.recv(65_536)
            secure.sendall(said("200 OK", b"pixels"))

    with serving(answer, flags=socket.MSG_PEEK) as network:
        trusted = fetcher(network, ssl_context=trusting)

        assert trusted.fetch("https://a.example/", max_bytes=6) == b"pixels"
        with pytest.raises(InputError, match=r"failed: .*(Hostname mismatch|certificate)"):
            trusted.fetch("https://b.example/", max_bytes=6)
        with pytest.raises(InputError, match=r"failed: .*certificate"):
            fetcher(network).fetch("https://a.example/", max_bytes=6)


def test_https_does_not_lead_to_http(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was asked for over a secure connection does not come over another."""
    insecure = httpx.URL("http://a.example/")
    # In place of a peer with a certificate that somebody would have to have signed.
    monkeypatch.setattr(Fetcher, "_get", lambda *_: insecure)
    with pytest.raises(InputError, match=r"'a\.example' redirects from https to http"):
        fetcher(NOWHERE).fetch("https://a.example/", max_bytes=10)


def test_a_plugin_fetches_by_its_access() -> None:
    """An image behind a URL is the image that its bytes are."""
    from fixtures.media import samples

    picture = samples.image()
    with serving(lambda peer, _: peer.sendall(said("200 OK", picture))) as network:
        plugin = ImagePlugin(MediaAccess(fetcher=fetcher(network)))
        fetched = plugin.parse_input({"url": "http://a.example/cat"})

    assert fetched == plugin.parse_input(picture)
