# SPDX-License-Identifier: Apache-2.0
"""Checks of what is left of very many calls: contexts, threads, and whatever the hook holds.

A client may say what it likes: a hook that reads fields of it gets other values in each call, too.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from conformance.checking import checks
from conformance.classifier_hook.bench import Bench
from conformance.classifier_hook.calls import TURNS, asked, run, turns
from conformance.classifier_hook.neighbours import keys_of
from conformance.classifier_hook.trial import Trial
from conformance.counterexample.hook_crowd_player import other
from conformance.findings import Finding, failed, passed, unjudged
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.endless import endless, ends, taking
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

#: What clients may send, of each kind one; in how many calls with other values a hook may seem to
#: grow before it gets :data:`CALLS`, twice; by how many objects for each of them it is said to.
_VALUES: tuple[Any, ...] = ("a", 1, 0.5, ["a"])
GLANCE = 500
BLOCKS = 0.5


def starts_threads(bench: Bench) -> Finding | None:
    """Return the finding that each call leaves a thread, or None; a process has few thousands."""
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
    what = f"{left} threads that {CALLS_ALONE} calls started still run"
    return failed(what, CALLS_ALONE, case={"threads": CALLS_ALONE})


@checks("CH-35")
def forgets(trial: Trial) -> Finding:
    """After ten thousand calls nothing is held of the first half of them, nor ever more."""
    bench = trial.bench
    if found := starts_threads(bench):
        return found
    found = _forgets(bench, trial.budget)
    return (found.verdict is Verdict.PASS and _forgets_values(bench)) or found


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


def _forgets_values(bench: Bench) -> Finding | None:
    """Return the finding that something is kept for every value that clients send, or None."""
    text, hook = bench.texts[0], bench.make()
    if bench.alone(text).worked > LIMIT / STRAIGHT:
        return None
    keys = keys_of(bench, text, "extra_fields")
    tables = [
        {key: value for key in keys if bench.alone(text, extra_fields={key: value}).good}
        for value in _VALUES
    ]
    if not (tables := list(filter(None, tables))):
        return None
    numbers = itertools.count(1)
    table = bench.run(_growing(bench, hook, tables, numbers))
    if table is None:
        return None

    def serve() -> int:
        calls = bench.in_turn(hook, list(islice(_valued(bench, [table], numbers), SOME)))
        return sum(call.good for call in calls)

    if ends(hook, serve):
        return None
    names = ", ".join(table)
    what = f"the hook holds more and more, each call with another value of the client's: {names}"
    return failed(f"{what}{taking(hook, serve, SOME)}", 2 * CALLS, case={"fields": table})


async def _growing(
    bench: Bench,
    hook: Any,  # noqa: ANN401 - a hook
    tables: list[dict[str, Any]],
    numbers: Iterator[int],
) -> dict[str, Any] | None:
    """Return the fields with whose values it grows, where a cache with an end would be full."""
    spent = Spent()

    async def held(tables: list[dict[str, Any]], count: int) -> int:
        contexts = _valued(bench, tables, numbers)
        for _ in range(0, count, AT_ONCE):
            if spent.beyond(LIMIT, WAITING):
                raise TimeoutError
            progressed()
            await _made(bench, hook, list(islice(contexts, AT_ONCE)))
        gc.collect()
        return sys.getallocatedblocks()

    async def grows(tables: list[dict[str, Any]], count: int) -> bool:
        before = await held(tables, count)
        return await held(tables, count) - before > count * BLOCKS / len(tables)

    with suppress(TimeoutError):  # who takes so long for that is not judged
        if await grows(tables, GLANCE):
            for table in tables:
                if await grows([table], GLANCE) and await grows([table], CALLS):
                    return table
    return None


def _valued(bench: Bench, tables: list[dict[str, Any]], numbers: Iterator[int]) -> Iterator[Any]:
    """Yield contexts of one text, each with values of clients that no other one has."""
    for number in numbers:
        table = tables[number % len(tables)]
        fields = {key: other(value, number) for key, value in table.items()}
        yield bench.context(bench.texts[0], extra_fields=fields)


def _grown(bench: Bench, hook: Any, count: int, what: str) -> Finding:  # noqa: ANN401 - a hook
    if count < STRAIGHT:
        why = f"{STRAIGHT} calls did not fit into the time there is, and after {count} {what}"
        return unjudged(why, count)
    few = _few(bench, hook, count)
    if ends(hook, few):
        return passed(count)
    what += taking(hook, few, SOME)
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
        await _made(bench, hook, contexts)
        del contexts
        if not len(given) % MEASURED:
            sizes.append((len(given), size_of(hook)))


async def _made(bench: Bench, hook: Any, contexts: list[Any]) -> None:  # noqa: ANN401 - a hook
    """Make calls at the same time."""
    calls = [asyncio.create_task(asked(hook, context)) for context in contexts]
    await asyncio.wait(calls, timeout=bench.patience)
    for call in calls:
        if not call.cancel() and not call.cancelled():
            call.exception()  # asyncio logs an exception that is never retrieved
    del calls, call
    await turns(TURNS)


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
