# SPDX-License-Identifier: Apache-2.0
"""Starts vLLM without the plugin: where that fails, too, the plugin is not at fault."""

from __future__ import annotations

import importlib.metadata
import tempfile
from collections.abc import Sequence
from pathlib import Path

from conformance.engine.entry_points import write_distribution
from conformance.engine.model_runner import Runner
from conformance.engine.server import Server, ServerFailed

#: Seconds until a server must be healthy.
LIMIT = 240.0


def why_not(
    model: Path | str,
    *,
    package: str,
    log: Path,
    device: str,
    runner: Runner | None = None,
    arguments: Sequence[str] = (),
) -> str | None:
    """Say why vLLM does not start on this machine without the plugin; None where it does.

    Args:
        model: the folder of a tiny model.
        package: the plugin's own, whose entry points are hidden.
        log: where the server's output goes.
        device: ``cpu`` or ``cuda``.
        runner: the model runner; without it vLLM chooses.
        arguments: of ``vllm serve``, those that the plugin's own has.

    """
    with tempfile.TemporaryDirectory(prefix="vllm-conformance-") as folder:
        _hide(Path(folder), package)
        server: Server | None = None
        try:
            server = Server.start(
                model,
                log=log,
                python_path=[folder],
                device=device,
                runner=runner,
                arguments=arguments,
            )
            server.wait_healthy(LIMIT)
        except ServerFailed as error:
            return f"vLLM does not start here without the plugin either: {error}"
        finally:
            if server is not None:
                server.stop()
    return None


def _hide(folder: Path, package: str) -> None:
    """Write the metadata of the package's distributions without their entry points."""
    own = importlib.metadata.packages_distributions().get(package, ())
    for distribution in importlib.metadata.distributions():
        modules = {entry.module.partition(".")[0] for entry in distribution.entry_points}
        if distribution.name in own or package in modules:
            write_distribution(folder, name=distribution.name, version=distribution.version)
