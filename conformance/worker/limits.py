# SPDX-License-Identifier: Apache-2.0
"""How much memory a trial in the simulator may have."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import psutil

#: Where a container says how much memory it has, in the second and the first version of cgroups.
_CONTAINER = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)

#: What vLLM, torch and the plugins that are tried here need is far less.
_LEAST = 4 << 30

#: What torch says where malloc gives nothing; it raises no MemoryError.
_TORCH = "can't allocate memory"

_GIB = 1 << 30


def memory() -> int:
    """Return how many bytes a process may have: half of the machine's, or of the container's."""
    total = psutil.virtual_memory().total
    for path in _CONTAINER:
        if path.is_file() and (text := path.read_text().strip()).isdecimal():
            total = min(total, int(text))
    return max(_LEAST, total // 2)


def limit_memory() -> None:
    """Let this process, and those that it forks, have no more memory; asking for more raises.

    What counts is private memory that can be written to: torch reserves far more addresses than
    it uses, and files of a model that are mapped to be read take none.
    """
    if sys.platform == "linux":
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = memory() if hard == resource.RLIM_INFINITY else min(memory(), hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def explained(error: BaseException) -> str:
    """Return the type of an error and what it says; what it means, where there was no memory."""
    said = str(error)
    if out_of_memory(error):
        said = f"asked for more memory than a trial may have ({memory() / _GIB:.0f} GiB)"
    return f"{type(error).__name__}: {said}"


def out_of_memory(error: BaseException) -> bool:
    """Tell whether an error means that there was no memory."""
    return isinstance(error, MemoryError) or _TORCH in str(error)
