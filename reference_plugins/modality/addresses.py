# SPDX-License-Identifier: Apache-2.0
"""Which addresses a server may connect to on behalf of a stranger.

A URL in a request is fetched from inside the deployment's network, where a metadata service,
a database without a password, or the engine's own port may listen. So only addresses of the
public internet are allowed, and everything else is refused, also where nothing listens there now.
"""

from __future__ import annotations

import socket
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from typing import TYPE_CHECKING

from reference_plugins.modality.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    #: from a host name to the addresses it has now, as text
    Resolver = Callable[[str], Sequence[str]]

#: All of IPv6 that is assigned to hosts; what Python calls global covers more, fec0::/10 for one.
UNICAST = IPv6Network("2000::/3")

#: IPv6 networks whose addresses carry an IPv4 address to which a router may translate them.
MAPPED = IPv6Network("::ffff:0:0/96")
TRANSLATED = IPv6Network("64:ff9b::/96")
SIX_TO_FOUR = IPv6Network("2002::/16")

#: Documentation, which Python 3.11 does not know yet.
DOCUMENTATION = IPv6Network("3fff::/20")

#: What Python calls global, and clouds use for services inside a machine's own network.
INTERNAL = (
    IPv4Network("192.0.0.0/24"),  # 192.0.0.192 answers with credentials in Oracle's cloud
    IPv4Network("168.63.129.16/32"),  # the host of a machine in Azure
)


def resolve(host: str) -> Sequence[str]:
    """Return the addresses that the system's resolver gives for a host.

    Raises:
        InputError: it gives none.

    """
    try:
        answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host {host!r} cannot be resolved") from error
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def public_addresses(host: str, resolver: Resolver = resolve) -> list[str]:
    """Return the addresses of a host, all of which are public.

    A host with one private address is refused whole: which one is connected to must not be
    left to the order of an answer that the host's owner makes up.

    Raises:
        InputError: the host has no address, or one that is not public.

    """
    literal = _literal(host)
    addresses = [literal] if literal else list(resolver(host))
    if not addresses:
        raise InputError(f"host {host!r} has no address")
    for address in addresses:
        if not is_public(address):
            # Not the address: whoever asks need not learn what the names of this network mean.
            raise InputError(f"host {host!r} is not on the public internet")
    return addresses


def is_public(address: str) -> bool:
    """Tell whether an address, in any form that a resolver gives, is of the public internet."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    return _is_public(parsed)


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    """Tell whether an address and every address inside it is of the public internet."""
    if isinstance(address, IPv4Address):
        refused = address.is_multicast or any(address in network for network in INTERNAL)
        return address.is_global and not refused
    if address.scope_id is not None:
        return False
    if address in MAPPED or address in TRANSLATED:
        return _is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    if address in SIX_TO_FOUR:
        return _is_public(IPv4Address(int(address) >> 80 & 0xFFFFFFFF))
    return address in UNICAST and address.is_global and address not in DOCUMENTATION


def _literal(host: str) -> str | None:
    """Return the address that a host already is, also as 2130706433, 0x7f.1 or 0177.0.0.1.

    Resolvers and C libraries take these forms for addresses, and a check of the text would not.
    """
    host = host.removeprefix("[").removesuffix("]")
    try:
        return str(ip_address(host))
    except ValueError:
        pass
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeError, ValueError):
        return None
