# SPDX-License-Identifier: Apache-2.0
"""What a call takes: memory at its peak, and processor time."""

from __future__ import annotations

import ctypes
import gc
import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import attrs

MEBIBYTE = 2**20

#: Beyond this there is no memory at all while an item is read, lest the machine suffers.
ROOM = 3 * 2**30


@attrs.define
class Cost:
    """What a call took."""

    memory: int = 0  #: bytes by which the process grew at its peak
    seconds: float = 0.0  #: of processor time


@contextmanager
def measured() -> Iterator[Cost]:
    """Measure what the block takes; there is little memory beyond what may be taken."""
    cost = Cost()
    gc.collect()
    with suppress(AttributeError, OSError):  # memory that is free already would hide what is taken
        ctypes.CDLL(None).malloc_trim(0)
    _forget_peak()
    before, started = _memory(), time.process_time()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    size = _status("VmSize")
    if size:
        most = size + ROOM
        soft = min(most, limits[1]) if limits[1] != resource.RLIM_INFINITY else most
        resource.setrlimit(resource.RLIMIT_AS, (soft, limits[1]))
    try:
        yield cost
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        cost.seconds = time.process_time() - started
        cost.memory = max(0, _peak() - before)


def _status(field: str) -> int:
    """Return a field of this process's status in bytes, 0 where there is none."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
        return int(status.split(f"{field}:")[1].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return 0


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory() -> int:
    return _status("VmRSS") or _peak()


def _peak() -> int:
    # Where the peak cannot be forgotten it only grows, and less is seen of what calls take.
    return _status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
