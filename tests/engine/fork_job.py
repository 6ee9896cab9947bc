# SPDX-License-Identifier: Apache-2.0
"""Jobs: servers that are forked from a process that has imported vLLM."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psutil

from conformance.engine.server import Server, hold

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


def serve_fresh(connection: Connection, model: str, folder: str, plugin: str) -> None:
    """Answer with the commands of a server and its engine, its status, and who is left."""
    connection.recv()
    hold()
    sys.path.insert(0, folder)
    importlib.import_module(plugin.partition(":")[0])  # as a trial does
    server = Server.start(
        model,
        log=Path(folder) / "server.log",
        python_path=[folder],
        logits_processors=[plugin],
        fresh=True,
        runner="v1",
    )
    server.wait_healthy(180)
    process = psutil.Process(server.pid)
    family = [process, *process.children(recursive=True)]
    commands = [" ".join(each.cmdline()) for each in family]
    body = {"model": server.model_name, "prompt": [5, 6, 7], "max_tokens": 3}
    status = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code
    server.stop()
    left = [one.pid for one in family if one.is_running()]
    connection.send((server.pid, commands, status, left))
