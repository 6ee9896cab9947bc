# SPDX-License-Identifier: Apache-2.0
"""Memory that this process has, and how much more it may take."""

from __future__ import annotations

import resource
from pathlib import Path

#: What a limit counts, as the status of a process names it.
_COUNTED = {resource.RLIMIT_AS: "VmSize", resource.RLIMIT_DATA: "VmData"}


def status(field: str) -> int:
    """Return a field of this process's status in bytes, 0 where there is none."""
    try:
        said = Path("/proc/self/status").read_text(encoding="ascii")
        return int(said.split(f"{field}:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


def leave_room(more: int, limit: int = resource.RLIMIT_AS) -> None:
    """Let this process have so much more memory than it has, where a system says how much that is.

    The limit of addresses counts what is reserved as well, that of data what can be written to.
    """
    soft, hard = resource.getrlimit(limit)
    if used := status(_COUNTED[limit]):
        limits = [used + more, *(each for each in (soft, hard) if each != resource.RLIM_INFINITY)]
        resource.setrlimit(limit, (min(limits), hard))
