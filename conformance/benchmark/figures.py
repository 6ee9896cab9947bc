# SPDX-License-Identifier: Apache-2.0
"""What was measured, and what of it is more than noise.

Knows neither vLLM nor torch: workers make these figures, and the caller reads them.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

import attrs

from conformance.benchmark.intervals import Interval, ratio
from conformance.benchmark.loads import Load
from conformance.settings import Budget


@attrs.frozen
class Failed:
    """What could not be measured, and why: one sentence.  A text would be taken for progress."""

    why: str


@contextmanager
def answering(connection: Connection) -> Iterator[None]:
    """Send :class:`Failed` where a block raises, and end it where the caller has gone."""
    try:
        yield
    except EOFError:
        pass
    except Exception as error:  # noqa: BLE001 - whatever a plugin, an engine or a server does
        traceback.print_exc()
        connection.send(Failed(f"{type(error).__name__}: {error}"))


@attrs.frozen
class Switches:
    """``SamplingParams`` keywords of requests that switch a plugin on, and of those that do not."""

    on: tuple[Mapping[str, Any], ...]
    off: tuple[Mapping[str, Any], ...]


@attrs.frozen
class Opened:
    """What is known of a plugin before its steps are measured."""

    on: tuple[Mapping[str, Any], ...]  #: ``SamplingParams`` keywords of requests that opt in
    environment: Mapping[str, Any]  #: versions, and the machine

    @property
    def device(self) -> str:
        """Where the steps run: ``cpu`` or ``cuda``."""
        return str(self.environment["device"])


#: Two equal instances lie at different addresses, and may differ by some thousandths of a step in
#: every round: less than this part of a step is nobody's doing, however quiet the machine is.
LEAST = 0.01


@attrs.frozen
class Cost:
    """What one step takes, in seconds of the thread (on a GPU, of the wall)."""

    load: Load
    rounds: int
    step: Interval  #: of the plugin, with the two calls that any processor gets
    added: Interval  #: beyond a processor that does nothing
    same: Interval  #: one instance of the plugin against another, as a part of its step
    against: Interval | None  #: the plugin against the other one, as a part of the other's step
    samples: tuple[float, ...]  #: steps of the plugin, in the order of the rounds
    waits: int | None  #: times that the host waits for the GPU in a step; None without one

    @property
    def floor(self) -> float:
        """The smallest difference, as a part of a step, that this run could have seen."""
        return max(LEAST, self.same.reach)


@attrs.frozen
class Round:
    """What one round took."""

    tokens: int  #: that were generated
    requests: int
    seconds: float
    processor_seconds: float | None = None  #: of the engine's process, where that is ours
    first_token: float | None = None  #: seconds until then, the median over the requests
    per_token: float | None = None  #: seconds for each token after the first, the mean
    latency: float | None = None  #: seconds of a request, the median
    latency_p99: float | None = None


#: Requests at once.
CROWDS = {Budget.QUICK: (8,), Budget.STANDARD: (1, 8, 32), Budget.DEEP: (1, 4, 16, 32, 64)}

#: Turns for each of them.
TURNS = {Budget.QUICK: 10, Budget.STANDARD: 20, Budget.DEEP: 60}

#: A figure of items in a prompt, and one of a token behind others: all others are of requests.
PER_ITEM, PER_TOKEN = "seconds per item", "next token"

#: What a round tells, by name, and what it is in.
FIGURES: dict[str, Callable[[Round], float | None]] = {
    "seconds per token": lambda found: found.seconds / found.tokens if found.tokens else None,
    "processor seconds per token": lambda found: (
        found.processor_seconds / found.tokens if found.processor_seconds and found.tokens else None
    ),
    # Of requests that generate nothing.
    "seconds per request": lambda found: None if found.tokens else found.seconds / found.requests,
    "processor seconds per request": lambda found: (
        found.processor_seconds / found.requests
        if found.processor_seconds and not found.tokens
        else None
    ),
    PER_ITEM: lambda found: found.seconds / found.requests,
    PER_TOKEN: lambda found: found.seconds / found.requests,
    "time to first token": lambda found: found.first_token,
    "time per output token": lambda found: found.per_token,
    "latency": lambda found: found.latency,
    "latency, 99th percentile": lambda found: found.latency_p99,
}


@attrs.frozen
class Overhead:
    """One figure, with the plugin against without; more is worse, 0.05 is 5 % more."""

    where: str  #: ``offline`` or ``server``, or what is done with which items or tokens
    crowd: int  #: requests at once, items in a prompt, or tokens in front
    figure: str  #: out of :data:`FIGURES`
    without: float  #: median, in seconds
    interval: Interval  #: what the plugin adds, as a part of ``without``
    same: Interval  #: what the engine without it differs from itself by
    samples: tuple[float, ...]  #: with the plugin, in the order of the rounds

    @property
    def floor(self) -> float:
        """The smallest difference that this run could have seen."""
        return max(self.same.reach, (self.interval.high - self.interval.low) / 2)

    @property
    def measurable(self) -> bool:
        """Whether the difference is more than the run's noise."""
        return self.interval.beyond(self.same.reach)


def compare(
    where: str,
    crowd: int,
    turns: Sequence[tuple[Round, Round, Round]],
    *,
    figures: Sequence[str],
    seed: int,
) -> list[Overhead]:
    """Return the figures that every round has."""
    found = []
    for name in figures:
        values = [[FIGURES[name](each) for each in rounds] for rounds in turns]
        if any(not value for three in values for value in three):
            continue
        before, during, after = (
            [float(three[place] or 0) for three in values] for place in range(3)
        )
        without = [(one * other) ** 0.5 for one, other in zip(before, after, strict=True)]
        found.append(
            Overhead(
                where,
                crowd,
                name,
                sorted(without)[len(without) // 2],
                ratio(during, without, seed=seed),
                ratio(before, after, seed=seed),
                tuple(during),
            )
        )
    return found
