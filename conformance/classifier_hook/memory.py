# SPDX-License-Identifier: Apache-2.0
"""Checks of what is left of very many calls: contexts, threads, and whatever the hook holds."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from itertools import islice
from typing import Any

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.calls import TURNS, asked, run, turns
from conformance.classifier_hook.trial import Trial
from conformance.findings import Finding, failed, passed, unjudged
from conformance.settings import Budget
from conformance.watching.endless import endless, taking
from conformance.watching.interruption import progressed
from conformance.watching.leaks import (
    FLAT,
    LONGEST,
    STRAIGHT,
    Given,
    Spent,
    flat,
    growing,
    kept,
    size_of,
    threads,
)
from conformance.watching.stretches import PAUSE

#: With any budget, of a hook that ever grew: a cache that has an end must have come to it.
CALLS = 10_000

#: After how many calls the hook is measured again, of how many measurements the growth is told,
#: and of how many calls it may still hold something.
MEASURED = 200
MEASUREMENTS = 5
KEPT = 16

#: Calls of which each may leave a thread, and how many may not; seconds that a call of a hook takes
#: at the most that is asked for so many, and that threads have to end in.
CALLS_ALONE, KEPT_THREADS, SLOW, ENDS = 16, 4, 0.2, 2.0

#: Calls in which a container is seen to grow, of a hook that takes its time.
SOME = 6

#: Calls at a time; seconds of work for all, and seconds in which nothing but the hook waits: both
#: are as many on a busy machine.
AT_ONCE = 100
LIMIT = 20.0
WAITING = 5.0

#: Calls without which nothing can be said.
FEWEST = 1_000


def starts_threads(bench: Bench) -> Finding | None:
    """Return that calls leave a thread each, of which a process may have few thousands, or None."""
    hook, text = bench.make(), bench.texts[0]
    if bench.alone(text).seconds > SLOW:
        return None
    before = threads()
    bench.row(hook, [text] * CALLS_ALONE)
    until = time.monotonic() + ENDS
    while (left := threads() - before) > CALLS_ALONE - KEPT_THREADS and time.monotonic() < until:
        time.sleep(PAUSE)
    if left <= CALLS_ALONE - KEPT_THREADS:
        return None
    return failed(f"{left} threads that {CALLS_ALONE} calls started still run", CALLS_ALONE)


@checks("CH-35")
def forgets(trial: Trial) -> Finding:
    """After ten thousand calls nothing is held of the first half of them, nor ever more."""
    bench = trial.bench
    return starts_threads(bench) or _forgets(bench, trial.budget)


def _forgets(bench: Bench, budget: Budget) -> Finding:
    hook = bench.make()
    # One that works for long takes long for very many calls.
    if bench.alone(bench.texts[0]).worked > LIMIT / STRAIGHT:
        other = bench.make()
        if what := endless(other, _few(bench, other, 0)):
            return failed(f"after a few calls {what}", SOME)
    given: list[Given] = []
    sizes: list[tuple[int, int]] = []
    enough = CALLS if budget is Budget.DEEP else FLAT
    run(_scored(bench, hook, given, sizes, enough), LONGEST + 2 * bench.patience)
    count = len(given)
    if count < STRAIGHT and (what := endless(hook, _few(bench, hook, count))):
        return failed(f"after {count} calls {what}", count)
    if count < FEWEST:
        why = f"{count} calls took all the time there is, and {FEWEST} are needed to tell"
        return unjudged(why, count)
    # A few that the hook keeps on purpose may be there, but no old ones.
    if what := kept(given[: count // 2], ("context",), KEPT):
        what += taking(hook, _few(bench, hook, count), SOME)
        return failed(f"after {count} calls {what}", count)
    what = growing(*_evenly(sizes))
    return _grown(bench, hook, count, what) if what else passed(count)


def _grown(bench: Bench, hook: Any, count: int, what: str) -> Finding:  # noqa: ANN401 - a hook
    if count < STRAIGHT:
        why = f"{STRAIGHT} calls did not fit into the time there is, and after {count} {what}"
        return unjudged(why, count)
    what += taking(hook, _few(bench, hook, count), SOME)
    return failed(f"after {count} calls {what}", count)


def _few(bench: Bench, hook: Any, count: int) -> Callable[[], int]:  # noqa: ANN401 - a hook
    """Return what makes some more calls, each with a text of its own."""
    numbers = itertools.count(count)

    def serve() -> int:
        texts = [f"{bench.texts[0]} {number}" for number in islice(numbers, SOME)]
        return sum(call.good for call in bench.row(hook, texts, [f"id-{text}" for text in texts]))

    return serve


async def _scored(
    bench: Bench,
    hook: Any,  # noqa: ANN401 - a hook
    given: list[Given],
    sizes: list[tuple[int, int]],
    enough: int,
) -> None:
    """Make calls; note what each was given, and how large the hook is after how many."""
    spent = Spent()
    while len(given) < CALLS and not (
        spent.beyond(LIMIT, WAITING) and _told(sizes, len(given), spent)
    ):
        if len(given) == enough and flat([size for _, size in sizes]):
            break
        progressed()  # however busy the machine is
        contexts = [
            bench.context(f"{bench.texts[n % len(bench.texts)]} {n}", request_id=f"id-{n}")
            for n in range(len(given), len(given) + AT_ONCE)
        ]
        given.extend((context,) for context in contexts)
        calls = [asyncio.create_task(asked(hook, context)) for context in contexts]
        await asyncio.wait(calls, timeout=bench.patience)
        for call in calls:
            if not call.cancel() and not call.cancelled():
                call.exception()  # asyncio logs an exception that is never retrieved
        del contexts, calls, call
        await turns(TURNS)
        if not len(given) % MEASURED:
            sizes.append((len(given), size_of(hook)))


def _told(sizes: list[tuple[int, int]], count: int, spent: Spent) -> bool:
    """Tell whether no more calls are needed of a hook that has taken its time."""
    if count >= STRAIGHT or spent.beyond(LONGEST, LONGEST):
        return True
    return len(sizes) <= MEASUREMENTS or growing(*_evenly(sizes)) is None


def _evenly(sizes: list[tuple[int, int]]) -> tuple[list[int], int]:
    """Return sizes at even distances, and how many calls are between two."""
    step = len(sizes) // MEASUREMENTS
    chosen = sizes[step - 1 :: step]
    return [size for _, size in chosen], chosen[1][0] - chosen[0][0]
