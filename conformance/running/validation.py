# SPDX-License-Identifier: Apache-2.0
"""What is wrong with what a run was asked for, and how much of it a machine can do at once.

Neither needs vLLM.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil

from conformance.plugin import files, profile
from conformance.plugin import target as targets
from conformance.rules import Evidence
from conformance.running import baseline
from conformance.settings import Device, Settings, UsageError, folder_name, require_writable

#: How many plugins are judged at the same time, at most, and the bytes of memory that the engines
#: and servers of each may take.
MOST_AT_ONCE = 4
MEMORY_EACH = 3 << 30

#: The environment variable that says how many it shall be instead.
AT_ONCE = "VLLM_CONFORMANCE_AT_ONCE"


def validate(settings: Settings) -> None:
    """Check what can be checked before vLLM is imported.

    Raises:
        UsageError: a target cannot be parsed, a profile is broken, an option contradicts
            another, or nothing can be written where reports go.

    """
    if not settings.targets:
        raise UsageError(f"name at least one target: --plugin-path {targets.forms()}.")
    _validate_server(settings)
    report = settings.directory / settings.report
    require_writable(report, settings.report)
    baseline.entries(settings)
    for text in settings.targets:
        for target in targets.parse(text, settings.directory):
            if target.root and settings.profile is None:  # a file, which is found without imports
                profile.find(files.find_source(target))
        if (report / folder_name(text)).exists():
            require_writable(report / folder_name(text), settings.report)
    if settings.profile is not None and ":" not in settings.profile:
        profile.load(settings.profile, settings.directory)


def _validate_server(settings: Settings) -> None:
    """Check what is said of a running server."""
    if settings.server_url and Evidence.SERVER not in settings.evidence:
        raise UsageError(
            "--server-url is only for server evidence: add --evidence server (or all)."
        )
    url = settings.server_url
    if url is None and (settings.server_headers or settings.server_hostile):
        raise UsageError(
            "--server-header and --server-hostile are about a running server: name it with "
            "--server-url."
        )
    if settings.server_load < 1:
        raise UsageError(
            f"--server-load {settings.server_load} is too few: it takes 1 request, or more."
        )
    if url and "@" in url.partition("://")[2].partition("/")[0]:
        raise UsageError(
            "--server-url holds a password, which certificates would show: give it with "
            "--server-header 'Authorization: Basic ...'."
        )
    if url and not url.startswith(("http://", "https://")):
        guess = url.partition("://")[2] or url
        raise UsageError(f"--server-url {url!r} is no URL: did you mean 'http://{guess}'?")


def affordable(settings: Settings) -> int:
    """Return how many plugins this machine can judge at the same time.

    Raises:
        UsageError: ``$VLLM_CONFORMANCE_AT_ONCE`` is no number above 0.

    """
    if chosen := os.environ.get(AT_ONCE):
        if not (chosen.isascii() and chosen.isdigit() and int(chosen)):
            raise UsageError(f"{AT_ONCE}={chosen!r} is no number of plugins: give 1 or more.")
        return int(chosen)
    if settings.device is not Device.CPU and any(Path("/dev").glob("nvidia[0-9]*")):
        return 1  # an engine of each takes its share of the GPU, and it may be a small one
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
    room = psutil.virtual_memory().available // MEMORY_EACH
    return max(1, min(cores, room, MOST_AT_ONCE))
