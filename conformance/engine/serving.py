# SPDX-License-Identifier: Apache-2.0
"""What trials with a live server share: its start, its end, and what a certificate says of it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.ledger import Ledger

START_LIMIT = 240.0

#: A server that runs already is healthy, or is not going to be.
EXTERNAL_LIMIT = 10.0

#: A server that a plugin brought down notices within some seconds.
DEATH_SECONDS = 10.0


def healthy(
    server: Server | ExternalServer,
    ledger: Ledger,
    progress: Callable[[str], None],
    *,
    loads: str,
    how: str,
) -> bool:
    """Wait until a server is healthy, or note in the ledger why it never is.

    Args:
        server: the server to wait for.
        ledger: where a server of our own that does not start breaks the rule *loads*, and one
            that runs and does not answer keeps every rule from being seen.
        progress: is told in a sentence what is waited for, and how long that took.
        loads: the rule that a server with the plugin starts.
        how: what the sentence about a server that does not start begins with.

    Returns:
        Whether the server is healthy.

    """
    progress("waiting for vllm serve to become healthy")
    started = time.perf_counter()
    try:
        server.wait_healthy(START_LIMIT if isinstance(server, Server) else EXTERNAL_LIMIT)
    except ServerFailed as error:
        if isinstance(server, ExternalServer) or isinstance(error, HostTrouble):
            ledger.stop(str(error))
        else:
            ledger.fail(loads, f"{how}: {error}")
        return False
    progress(f"vllm serve is healthy after {time.perf_counter() - started:.1f} s")
    return True


def death(server: Server | ExternalServer | None) -> str | None:
    """Return how a server died, or None; a healthy one costs no waiting."""
    if server is None or server.healthy():
        return None
    return server.failure(within=DEATH_SECONDS)


def context(server: Server | ExternalServer | None, path: str) -> dict[str, str]:
    """Return what a certificate says about a server that was running already; nothing of ours."""
    if not isinstance(server, ExternalServer):
        return {}
    return {
        "device": "as the server's",
        "model": server.model_name,
        "host_server": f"{path} of {server.url}",
    }
