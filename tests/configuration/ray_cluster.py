# SPDX-License-Identifier: Apache-2.0
"""A program: two Ray nodes on this machine, and a vLLM server that Ray starts on the second.

    python ray_cluster.py MODEL LOGITS_PROCESSOR LOG

Prints how many nodes there are, on which one the server is, and its address;
ends everything at SIGINT or SIGTERM.
"""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any


def main() -> None:
    """Start the cluster and the server, and wait."""
    import ray
    from ray.cluster_utils import Cluster

    # Raised as Ray starts its processes, an exception would leave those that nobody knows yet.
    over = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: over.set())
    model, plugin, log = sys.argv[1:]
    room = {"object_store_memory": 100 << 20}
    cluster = Cluster()
    try:
        cluster.add_node(num_cpus=1, include_dashboard=False, **room)
        if not over.is_set():
            cluster.add_node(num_cpus=1, resources={"serving": 1}, **room)
        if over.is_set():
            return
        ray.init(address=cluster.address, log_to_driver=False)
        # The server outlives an actor that is killed, so a call ends it, also while it starts.
        remote: Any = ray.remote(resources={"serving": 1}, num_cpus=0, max_concurrency=2)
        actor: Any = remote(_Serving).remote()
        try:
            node, url = ray.get(actor.start.remote(model, plugin, log, sys.path))
            healthy = [actor.wait_healthy.remote()]
            while not over.is_set() and not ray.wait(healthy, timeout=0.2)[0]:
                pass
            if over.is_set():
                return
            ray.get(healthy)
            here = ray.get_runtime_context().get_node_id()
            where = "another" if node != here else "this"
            sys.stdout.write(f"{len(ray.nodes())} {where} {url}\n")
            sys.stdout.flush()
            over.wait()
        finally:
            ray.get(actor.stop.remote())
    finally:
        ray.shutdown()
        cluster.shutdown()


class _Serving:
    """What runs on the second node."""

    def start(self, model: str, plugin: str, log: str, path: list[str]) -> tuple[str, str]:
        """Start a server, and return this node and the address."""
        sys.path[:0] = path
        import ray

        from conformance.engine.server import Server

        self.server: Any = Server.start(
            model, log=Path(log), logits_processors=[plugin], python_path=path, runner="v1"
        )
        return ray.get_runtime_context().get_node_id(), self.server.url

    def wait_healthy(self) -> None:
        """Wait until the server answers."""
        self.server.wait_healthy(240.0)

    def stop(self) -> None:
        """End the server."""
        self.server.stop()


if __name__ == "__main__":
    main()
