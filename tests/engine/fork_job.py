# SPDX-License-Identifier: Apache-2.0
"""A job: a server that is forked from a process that has imported vLLM."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil

from conformance.engine.server import Server

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


def serve(connection: Connection, model: str, log: str) -> None:
    """Answer with the names of the server's ancestors, its status, and who is left afterwards."""
    connection.recv()
    server = Server.start(model, log=Path(log), imported=True)
    server.wait_healthy(120)
    process = psutil.Process(server.pid)
    family = [process, *process.children(recursive=True)]
    command = process.cmdline()
    body = {"model": server.model_name, "prompt": [5, 6, 7], "max_tokens": 3}
    status = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code
    server.stop()
    left = [one.pid for one in family if one.is_running()]
    connection.send((command, len(family), status, left, server.failure()))
