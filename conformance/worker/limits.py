# SPDX-License-Identifier: Apache-2.0
"""How much memory a trial in the simulator may have, and how long an import is waited for."""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

    from conformance.worker.client import Job

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
