# SPDX-License-Identifier: Apache-2.0
"""Time that does not turn on how busy the machine is: without that of waiting for a processor."""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Mapping
from threading import get_native_id

from conformance.coverage import lines

#: A loop of so many steps, how often it is measured, and the seconds of processor time that it
#: takes on a machine that limits are for: one that imports vLLM in four seconds.
STEPS, TIMES, USUAL = 200_000, 9, 0.0055

_OWN = "/proc/thread-self/schedstat"
_THREADS = "/proc/self/task"


def clocks() -> tuple[float, float, float]:
    """Return seconds: of the clock, of work by this thread, and of its waiting for a processor."""
    return time.perf_counter(), time.thread_time(), _delay(_OWN)


def slowness() -> float:
    """Return how many times as long as usual the same work takes here and now, 1.0 at the least.

    A slow machine, or one whose processors others use as well, is no fault of a plugin.
    """
    return max(1.0, statistics.median(_work() for _ in range(TIMES)) / USUAL)


def beyond(worked: float, limit: float) -> bool:
    """Tell whether seconds of processor time are more than a limit of an ordinary machine."""
    return worked > limit and worked > limit * slowness()


def shortest(measure: Callable[[], float], limit: float, times: int) -> float:
    """Return the shortest of so many measurements, or the first that is within a limit.

    Lines are watched in the first alone: watching them takes time as well.
    """
    least = float("inf")
    for attempt in range(times):
        with lines.unwatched(when=attempt > 0):
            least = min(least, measure())
        if least <= limit:
            break
    return least


def _work() -> float:
    started, total = time.thread_time(), 0
    for number in range(STEPS):
        total += number
    return time.thread_time() - started


def undelayed() -> float:
    """Return seconds of the clock, without those in which this thread waited for a processor."""
    return time.perf_counter() - _delay(_OWN)


def gave_way() -> int:
    """Return how often this thread has stopped by itself, and not because others had their turn."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def delayed_threads() -> float:
    """Return for how long threads of this process could have worked and had no processor."""
    return sum(_delays().values())


def delays_of_others() -> Mapping[int, float]:
    """Return for how long each other thread of this process has waited for a processor."""
    return {thread: delay for thread, delay in _delays().items() if thread != get_native_id()}


def longest_delay(since: Mapping[int, float]) -> float:
    """Return for how long one of the other threads, at the most, has waited for a processor since.

    Who waits for a thread, if only until it has begun, waits for that as well.
    """
    now = delays_of_others()
    return max([0.0, *(delay - since.get(thread, 0.0) for thread, delay in now.items())])


def busy_threads() -> float:
    """Return for how long all threads but this one have worked, or could have.

    Asking takes milliseconds where there are many threads; this is no work of theirs.
    """
    delayed = sum(delays_of_others().values())
    return time.process_time() - time.thread_time() + delayed


def _delays() -> dict[int, float]:
    """Return for how long each thread has waited for a processor; nothing where none tells."""
    try:
        threads = os.listdir(_THREADS)  # noqa: PTH208 - a Path for each costs more than to read it
    except FileNotFoundError:
        return {}
    return {int(thread): _delay(f"{_THREADS}/{thread}/schedstat") for thread in threads}


def _delay(path: str) -> float:
    """Return seconds; 0.0 where no system tells."""
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123 - a Path costs more, and this is asked at every step
            return int(file.read().split()[1]) / 1e9
    except (OSError, LookupError, ValueError):
        return 0.0
