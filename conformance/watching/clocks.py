# SPDX-License-Identifier: Apache-2.0
"""Time that does not turn on how busy the machine is: without that of waiting for a processor."""

from __future__ import annotations

import resource
import time
from pathlib import Path

_OWN = "/proc/thread-self/schedstat"


def clocks() -> tuple[float, float, float]:
    """Return seconds: of the clock, of work by this thread, and of its waiting for a processor."""
    return time.perf_counter(), time.thread_time(), _delay(_OWN)


def undelayed() -> float:
    """Return seconds of the clock, without those in which this thread waited for a processor."""
    return time.perf_counter() - _delay(_OWN)


def gave_way() -> int:
    """Return how often this thread has stopped by itself, and not because others had their turn."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def delayed_threads() -> float:
    """Return for how long threads of this process could have worked and had no processor."""
    return sum(_delay(str(path)) for path in Path("/proc/self/task").glob("*/schedstat"))


def _delay(path: str) -> float:
    """Return seconds; 0.0 where no system tells."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - a Path costs more, and this is asked at every step
            return int(file.read().split()[1]) / 1e9
    except (OSError, LookupError, ValueError):
        return 0.0
