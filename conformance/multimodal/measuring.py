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

from conformance.watching.room import leave_room, status

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
    leave_room(ROOM)
    try:
        yield cost
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
        cost.seconds = time.process_time() - started
        cost.memory = max(0, _peak() - before)


def _forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _memory() -> int:
    return status("VmRSS") or _peak()


def _peak() -> int:
    # Where the peak cannot be forgotten it only grows, and less is seen of what calls take.
    return status("VmHWM") or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
