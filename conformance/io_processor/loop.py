# SPDX-License-Identifier: Apache-2.0
"""Checks of how long the event loop is held."""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Callable
from itertools import product

from conformance.checking import checks
from conformance.coverage import lines
from conformance.findings import Finding, failed, passed
from conformance.io_processor.admission import unanswered
from conformance.io_processor.trial import Trial
from conformance.io_processor.watched import AFTER_OUTPUTS, Call
from conformance.watching.clocks import beyond
from conformance.watching.comparison import shortened

#: Seconds for which a call may wait, and work, on the event loop.
WAIT, WORK = 0.1, 0.2

#: A busy machine holds anybody up now and then, a fault every time: the shortest of so many counts.
#: Lines are watched in the first alone.
TIMES = 4


@checks("IO-32")
def waits(trial: Trial) -> Finding:
    """No call on the event loop waits for anything."""
    return _measured(trial, "waited", WAIT, lambda call: call.longest.waited)


@checks("IO-33")
def works(trial: Trial) -> Finding:
    """No call on the event loop takes long to compute."""
    return _measured(trial, "worked", WORK, lambda call: call.longest.worked, beyond)


def _measured(
    trial: Trial,
    what: str,
    limit: float,
    seconds: Callable[[Call], float],
    exceeds: Callable[[float, float], bool] = operator.gt,
) -> Finding:
    bench = trial.bench
    # What hooks do with outputs that were made up, in vain, says nothing of how long they take.
    guessed = unanswered(trial)
    forms = [False] if bench.online is bench.waiting else [False, True]
    for data, awaited in product(bench.stock.originals, forms):
        longest: dict[str, float] = {}
        for attempt in range(TIMES):
            now: defaultdict[str, float] = defaultdict(float)
            with lines.unwatched(when=attempt > 0):
                calls = bench.try_online(data, awaited=awaited).calls
            for call in calls:
                if call.on_loop and not (guessed and call.name in AFTER_OUTPUTS):
                    now[call.name] = max(now[call.name], seconds(call))
            longest = {name: min(value, longest.get(name, value)) for name, value in now.items()}
            if all(value <= limit for value in longest.values()):
                break
        for name, value in longest.items():
            if exceeds(value, limit):
                return failed(
                    f"{name} {what} {value * 1000:.0f} ms on the event loop, for "
                    f"{shortened(data)} (at most {limit * 1000:.0f} ms)",
                    case={"data": data, "call": name, "what": what, "limit": limit},
                )
    return guessed or passed(bench.stock.given)
