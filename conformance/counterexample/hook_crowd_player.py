# SPDX-License-Identifier: Apache-2.0
"""Plays cases of more than one call against a classifier hook.

As in :mod:`conformance.counterexample.hook_player`, a function returns what happened and what was
expected, or None where it is as the docstring says.
"""

import asyncio
import copy
import gc
import tracemalloc
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conformance.counterexample.hook_player import Steps, apart, context, scored
from conformance.counterexample.process_player import changed_by

#: A text, a request id, turns of the event loop until the next call begins, the wait at which it is
#: cancelled, or 0, and what else its context says.
Made = tuple[str, str, int, int, dict[str, Any]]


async def together(hook: Any, calls: list[Made]) -> list[Any]:
    """Make calls at the same time."""

    def begin(text: str, name: str, leaves: int, more: dict[str, Any]) -> asyncio.Task[Any]:
        steps = Steps(hook.score(context(text, name, **more)))
        task = asyncio.ensure_future(steps)
        loop = asyncio.get_running_loop()
        steps.waiting = lambda n: loop.call_soon(task.cancel) if n == leaves else None
        return task

    tasks = []
    for text, name, turns, leaves, more in calls:
        tasks.append(begin(text, name, leaves, more))
        for _ in range(turns):
            await asyncio.sleep(0)
    await asyncio.wait(tasks, timeout=30)
    found: list[Any] = []
    for task in tasks:
        if not task.done():
            found.append("never got its scores")
        else:
            lost = task.cancelled() or task.exception()
            found.append(repr(lost) if lost else copy.deepcopy(task.result()))
    for task in tasks:
        task.cancel()
    return found


def compared(make: Any, calls: list[Made], got: list[Any], hidden: Sequence[str]) -> str | None:
    """Say which call did not get what it gets alone, or return None."""
    for (text, name, _, leaves, more), mine in zip(calls, got, strict=True):
        (alone,) = scored(make(), context(text, name, **more))
        if not leaves and (what := apart(mine, alone, hidden)):
            return f"{text!r:.80} did not get what it gets alone\n  {what}"
    return None


def check_sequence(make: Any, calls: list[Made], hidden: Sequence[str] = ()) -> str | None:
    """A text that is scored after others gets what it gets alone."""
    contexts = [context(text, name, **more) for text, name, _, _, more in calls]
    return compared(make, calls, scored(make(), *contexts), hidden)


def check_at_once(make: Any, calls: list[Made], hidden: Sequence[str] = ()) -> str | None:
    """A text that is scored beside others gets what it gets alone."""
    return compared(make, calls, asyncio.run(together(make(), calls)), hidden)


def check_other_loop(make: Any, texts: list[str], hidden: Sequence[str] = ()) -> str | None:
    """On another event loop every text gets what it gets alone."""
    hook = make()
    first: list[Made] = [(text, f"first-{at}", 0, 0, {}) for at, text in enumerate(texts)]
    calls: list[Made] = [(text, f"id-{at}", 0, 0, {}) for at, text in enumerate(texts)]
    asyncio.run(together(hook, first))
    return compared(make, calls, asyncio.run(together(hook, calls)), hidden)


def check_aged(make: Any, text: str, seconds: float, hidden: Sequence[str] = ()) -> str | None:
    """Scored again some time later a text gets what it gets alone."""

    async def main() -> list[Any]:
        hook, found = make(), []
        for wait in (0.0, seconds):
            await asyncio.sleep(wait)
            try:
                found.append(copy.deepcopy(await hook.score(context(text))))
            except Exception as error:
                found.append(error)
        return found

    first, again = asyncio.run(main())
    what = apart(again, first, hidden)
    return (
        f"scored again {seconds} s later the text gets something else\n  {what}" if what else None
    )


def check_crowd(make: Any, texts: list[str], wait: int, hidden: Sequence[str] = ()) -> str | None:
    """Among and after many calls at once a text gets what it gets alone, also if they left."""
    calls: list[Made] = [
        (texts[number % len(texts)], f"id-{number}", 0, wait, {}) for number in range(64)
    ]

    async def main() -> tuple[list[Any], Any]:
        hook = make()
        crowd = asyncio.create_task(together(hook, calls))
        await asyncio.wait([crowd], timeout=2)
        among = crowd.result() if crowd.done() else []
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.5 if wait else 0)
        try:
            return among, await asyncio.wait_for(hook.score(context(texts[0])), 10)
        except Exception as error:
            return among, error

    among, got = asyncio.run(main())
    (alone,) = scored(make(), context(texts[0]))
    if what := apart(got, alone, hidden):
        how = f"were cancelled at their wait number {wait}" if wait else "were made at once"
        return f"after 64 calls that {how} the text did not get what it gets alone\n  {what}"
    # One that raises may be turned down because there are so many.
    good = [number for number, mine in enumerate(among) if isinstance(mine, dict)]
    asked, scores = [calls[number] for number in good], [among[number] for number in good]
    if what := compared(make, asked, scores, hidden):
        return f"among 64 calls at once {what}"
    return None


def check_own(make: Any, texts: list[str], hidden: Sequence[str] = ()) -> str | None:
    """Later calls change nothing of what was returned."""

    async def main() -> list[tuple[str, Any, Any]]:
        hook, found = make(), []
        for text in texts:
            got = await hook.score(context(text))
            found.append((text, got, copy.deepcopy(got)))
        return found

    for text, now, then in asyncio.run(main()):
        if what := apart(now, then, hidden):
            return f"after later calls the scores of {text!r:.80} are others\n  {what}"
    return None


def other(value: Any, number: int) -> Any:
    """Return another value of the same kind, for each number another one."""
    if isinstance(value, list):
        return [other(item, number) for item in value]
    return f"{value}{number}" if isinstance(value, str) else value + number


def check_forgets(make: Any, texts: list[str], fields: dict[str, Any] | None = None) -> str | None:
    """Nothing is held of calls that are over, nor of what clients have sent with them."""
    held: list[int] = []

    async def main() -> int:
        hook, contexts = make(), []
        tracemalloc.start()
        for number in range(10_000):
            each = context(f"{texts[number % len(texts)]} {number}", f"id-{number}")
            sent = {name: other(value, number) for name, value in (fields or {}).items()}
            each.extra_fields.update(sent)
            if number < 5_000:
                contexts.append(weakref.ref(each))
            with suppress(Exception):
                await hook.score(each)
            del each
            if number % 2_000 == 1_999:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        return sum(reference() is not None for reference in contexts)

    if (alive := asyncio.run(main())) > 16:
        return f"{alive} contexts of calls that are long over are still held\nexpected: none"
    # Of five thousand references this function itself holds 2,000 after each of the first rounds.
    if held[-1] - held[-2] > 2_000 * 4 and held[-2] - held[-3] > 2_000 * 4:
        what = f"more memory is held after each 2,000 calls, in bytes: {held}"
        return f"{what}\nexpected: as much as before"
    return None


def check_threads(make: Any, text: str, count: int) -> str | None:
    """Calls that are over leave no threads behind, one for each of them."""

    def threads() -> int:
        return len(list(Path("/proc/self/task").iterdir()))

    async def main() -> int:
        hook, before = make(), threads()
        for number in range(count):
            with suppress(Exception):
                await hook.score(context(text, f"id-{number}"))
        for _ in range(200):  # those that end soon have two seconds
            if threads() - before < count:
                break
            await asyncio.sleep(0.01)
        return threads() - before

    if (left := asyncio.run(main())) >= count:
        return f"{left} threads run on after {count} calls\nexpected: none, or a few for all"
    return None


def check_shares(make: Any, text: str, names: list[str], turns: int = 0) -> str | None:
    """A call leaves to others what all of the process share, also while it waits."""

    async def serve(hook: Any) -> None:
        call = asyncio.ensure_future(hook.score(context(text)))
        if not turns:
            await call
        for _ in range(turns):
            await asyncio.sleep(0)

    return changed_by(make, serve, names)
