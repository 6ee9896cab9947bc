# SPDX-License-Identifier: Apache-2.0
"""The process of a ``vllm serve`` that is forked, where one is."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from conformance.coverage import lines
from conformance.engine import model_runner, spawning


def serve(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the command of a server in this process, a fork, and its engine in another fork."""
    from vllm import envs

    # `vllm serve` asks for spawned processes, which would import everything.
    envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    _run(command, environment)


def serve_fresh(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run the command of a server in this process, and its engine in a fork of what it is now."""
    spawning.fork_instead()
    _run(command, environment)


def _run(command: Sequence[str], environment: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.argv = ["vllm", *command[command.index("serve") :]]
    from vllm.entrypoints.cli.main import main

    model_runner.prepare()
    lines.begin()
    main()
