# SPDX-License-Identifier: Apache-2.0
"""What a soak has shown: data, what grew, and a plot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import attrs

#: By how much more than a server without the plugin it may grow: bytes, handles, times as slow.
MOST_BYTES, MOST_HANDLES, MOST_SLOWER = 24 << 20, 16, 3.0

#: Answers that are wrong, of which the first are told.
TOLD = 5


@attrs.frozen
class Look:
    """What one process had at one time."""

    seconds: float
    process: str
    memory: int
    handles: int


@attrs.frozen(kw_only=True)
class Record:
    """What came of a soak."""

    sent: int = 0
    #: By what became of requests: ``answered``, ``left``, ``refused``.
    outcomes: Mapping[str, int] = attrs.field(factory=dict)
    wrong: tuple[str, ...] = ()  #: answers that are not those of the plain engine, or none at all
    latencies: tuple[tuple[float, float], ...] = ()  #: when an answer was there, and after how long
    looks: tuple[Look, ...] = ()
    problem: str | None = None  #: the server did not start, or ended


@attrs.frozen(kw_only=True)
class Growth:
    """The last third of the time beside the second; in the first a server warms up."""

    memory: float  #: bytes of all processes
    handles: float  #: open files of all processes
    slower: float  #: how many times as long answers took

    @classmethod
    def of(cls, record: Record, seconds: float) -> Growth:
        """Measure what grew in a soak of so many seconds."""
        memory = handles = 0.0
        for process in {look.process for look in record.looks}:
            looks = [look for look in record.looks if look.process == process]
            used = _thirds([(look.seconds, look.memory) for look in looks], seconds)
            opened = _thirds([(look.seconds, look.handles) for look in looks], seconds)
            memory += used[1] - used[0]
            handles += opened[1] - opened[0]
        before, after = _thirds(record.latencies, seconds)
        return cls(memory=memory, handles=handles, slower=after / before if before else 1.0)

    def beyond(self, other: Growth) -> list[str]:
        """Say what grew by much more than in another soak."""
        found = []
        if self.memory - other.memory > MOST_BYTES:
            found.append(
                f"memory grew by {self.memory / 2**20:.0f} MiB, "
                f"and without the plugin by {other.memory / 2**20:.0f} MiB"
            )
        if self.handles - other.handles > MOST_HANDLES:
            found.append(
                f"there are {self.handles:.0f} more open files, "
                f"and without the plugin {other.handles:.0f}"
            )
        if self.slower > MOST_SLOWER * other.slower:
            found.append(
                f"answers took {self.slower:.1f} times as long in the end, "
                f"and without the plugin {other.slower:.1f} times"
            )
        return found


#: A server in which nothing grows.
STILL = Growth(memory=0.0, handles=0.0, slower=1.0)


def _thirds(values: Sequence[tuple[float, Any]], seconds: float) -> tuple[float, float]:
    """Return the medians of the second and of the last third; twice 0 where one has no value."""
    second = [value for when, value in values if seconds / 3 <= when < seconds * 2 / 3]
    last = [value for when, value in values if seconds * 2 / 3 <= when <= seconds]
    return (median(second), median(last)) if second and last else (0.0, 0.0)


def plot(record: Record, seconds: float) -> str:
    """Return an SVG with the memory of every process, and how long answers took."""
    processes = list(dict.fromkeys(look.process for look in record.looks))
    series = [
        (f"{name}, MiB", [(x.seconds, x.memory / 2**20) for x in record.looks if x.process == name])
        for name in processes
    ]
    series.append(("answers, seconds", list(record.latencies)))
    width, height = 640, 120
    parts = []
    for row, (name, values) in enumerate(series):
        top = row * height
        most = max((value for _, value in values), default=0.0) or 1.0
        points = " ".join(
            f"{width * when / seconds:.1f},{top + height * (1 - 0.75 * value / most):.1f}"
            for when, value in sorted(values)
        )
        parts.append(f'<text x="4" y="{top + 16}">{name}: {most:.2f} at most</text>')
        parts.append(f'<polyline points="{points}" fill="none" stroke="steelblue"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height * len(series)}" '
        f'font-family="sans-serif" font-size="12">{"".join(parts)}</svg>\n'
    )
