# SPDX-License-Identifier: Apache-2.0
"""What a user does: types commands, reads what they say, and loses patience with them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from support import ROOT

from conformance.engine.environment import cache_directory
from conformance.worker import nursery

if TYPE_CHECKING:
    from pathlib import Path

CLI = ("conformance.cli",)

CACHE = str(cache_directory())

#: Where the harness is imported from the repository and not installed, pytest must be told of it.
PYTEST: tuple[str, ...] = ("pytest",)
if not any(entry.module == "conformance.pytest_plugin" for entry in entry_points(group="pytest11")):
    PYTEST += ("-p", "conformance.pytest_plugin")

#: Seconds after which a command hangs; one with all evidence takes eighty on a busy machine.
PATIENCE = 240.0


def environment(*folders: Path) -> dict[str, str]:
    """Return the environment of a command, with these folders in front on ``PYTHONPATH``."""
    path = [str(folder) for folder in (*folders, ROOT)]
    path += [os.environ["PYTHONPATH"]] if os.environ.get("PYTHONPATH") else []
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join(path),
        "VLLM_CONFORMANCE_CACHE": CACHE,
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }


def start(
    *command: str, folder: Path, paths: tuple[Path, ...] = (), alone: bool = False
) -> subprocess.Popen[str]:
    """Start ``python -m COMMAND`` in a folder; its two streams are one.

    One that is *alone* imports vLLM by itself: all its processes are its descendants.
    """
    return subprocess.Popen(
        [sys.executable, "-m", *command],
        cwd=folder,
        env=environment(*paths) | ({nursery.ADDRESS: ""} if alone else {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Where the tests run in the background, a shell has Ctrl-C ignored, for them and below.
        preexec_fn=_heed_interrupts,  # noqa: PLW1509 - it calls nothing that could deadlock
    )


def _heed_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run(*command: str, folder: Path, paths: tuple[Path, ...] = ()) -> tuple[int, str]:
    """Run ``python -m COMMAND`` in a folder; return its exit status and what it said."""
    with start(*command, folder=folder, paths=paths) as process:
        try:
            said, _ = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    return process.returncode, said


def certificates(folder: Path, report: str = "reports/local") -> dict[str, dict[str, Any]]:
    """Read the certificates under a folder, by target; JSON that others cannot read is refused."""
    found = {}
    for path in sorted((folder / report).glob("*/certificate.json")):
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
        found[document["plugin"]["target"]] = document
    return found


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    """Return the verdicts of a certificate by rule."""
    return {rule["id"]: rule["verdict"] for rule in document["rules"]}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
