# SPDX-License-Identifier: Apache-2.0
"""How long the import of a plugin is waited for, and what is said meanwhile."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import attrs
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker.client import Job

#: So long an import may do next to nothing: neither compute, nor read or write anything.
IDLE_SECONDS = 60.0

#: So long it may take altogether: a plugin that loads a model may.
LIMIT_SECONDS = 300.0

#: How often the user is told that it goes on, and after how long where it is.
TELL_SECONDS = 10.0
PLACE_SECONDS = 50.0

#: What counts as doing something: seconds of computing, bytes.
_WORKED = 3.0
_MOVED = 1 << 20


@attrs.define
class Patience:
    """Waits for the import of one plugin.

    An import that sleeps or waits for a lock, and one that loads a model, look alike from outside
    but for what they use of the machine.
    """

    name: str  #: of what is imported
    tell: Callable[[str], None]
    where: Callable[[str], str]  #: names the plugin's line in a stack
    _started: float = attrs.field(init=False, factory=time.monotonic)
    _told: float = attrs.field(init=False, default=0.0)
    _used: tuple[float, float] = attrs.field(init=False, default=(0.0, 0.0))
    _got_on: float = attrs.field(init=False, factory=time.monotonic)

    def __call__(self, job: Job) -> str | None:
        """Return why the import is given up, once it is."""
        now = time.monotonic()
        seconds = now - self._started
        used = _used(job.pid)
        if abs(used[0] - self._used[0]) > _WORKED or abs(used[1] - self._used[1]) > _MOVED:
            self._used, self._got_on = used, now
        if now - self._got_on > IDLE_SECONDS:
            return f"did nothing for {IDLE_SECONDS:.0f} s"
        if seconds > LIMIT_SECONDS:
            return f"did not end within {LIMIT_SECONDS:.0f} s"
        if seconds - self._told >= TELL_SECONDS:
            self._told = seconds - seconds % TELL_SECONDS
            place = self.where(job.stack()) if seconds >= PLACE_SECONDS else ""
            self.tell(f"importing {self.name}: {self._told:.0f} s so far{place}")
        return None


def _used(pid: int) -> tuple[float, float]:
    """Return the seconds that a process and its children computed, and the bytes they moved."""
    seconds = moved = 0.0
    try:
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            times, counters = each.cpu_times(), each.io_counters()
            seconds += times.user + times.system
            moved += counters.read_chars + counters.write_chars
    except psutil.Error:  # one of them has just ended
        pass
    return seconds, moved
