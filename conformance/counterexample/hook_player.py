# SPDX-License-Identifier: Apache-2.0
"""Plays a case against a classifier hook, and says what is wrong.

The program of a counterexample is the function of this module that plays its case, with what that
function uses; so they need the hook and the standard library alone (and torch, where they are about
what a process shares), and a context is a data class of their own.  ``make()`` is the hook, as an
engine registers it.  A function returns what happened and what was expected, or None where it is as
the docstring says.
"""

import asyncio
import copy
import inspect
import math
import re
import traceback
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import perf_counter, thread_time
from typing import Any, NamedTuple


class TokenLogprob(NamedTuple):
    """The log probability of one token at one position."""

    logprob: float
    rank: int | None
    decoded_token: str | None


@dataclass(kw_only=True)
class ScoringContext:
    """A finished completion, as hooks are told of it."""

    request_id: str
    prompt: str = "Say something."
    generated_text: str
    finish_reason: str = "stop"
    prompt_token_ids: list[int] = field(default_factory=lambda: [1, 3, 4])
    output_token_ids: list[int]
    extra_fields: dict[str, Any] = field(default_factory=dict)
    request_metadata: dict[str, Any] = field(default_factory=dict)
    index: int = 0
    stop_reason: int | str | None = None
    logprobs: list[Any] | None = None
    cumulative_logprob: float | None = None
    prompt_logprobs: list[Any] | None = None


def context(text: str, request_id: str = "id-0", **more: Any) -> ScoringContext:
    """Return the context of a completion that says a text."""
    tokens = [*(ord(c) % 500 + 3 for c in text[:512]), 2]
    fields = {"request_id": request_id, "generated_text": text, "output_token_ids": tokens}
    for name in {"logprobs", "prompt_logprobs"} & more.keys():
        more[name] = [
            each and {token: TokenLogprob(*said) for token, said in each.items()}
            for each in more[name] or ()
        ]
    return ScoringContext(**{**fields, **more})


def scored(hook: Any, *contexts: ScoringContext) -> list[Any]:
    """Score completions one after the other; return the scores, or the exception for each."""

    async def main() -> list[Any]:
        found: list[Any] = []
        for each in contexts:
            try:
                found.append(copy.deepcopy(await asyncio.wait_for(hook.score(each), 60)))
            except Exception as error:
                found.append(error)
        return found

    return asyncio.run(main())


def places(value: Any, place: str = "scores") -> dict[str, str]:
    """Return what scores hold, by the place where it stands."""
    if isinstance(value, dict):
        parts = [(f"{place}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {place: repr(value)}
    return {where: leaf for name, item in parts for where, leaf in places(item, name).items()}


def apart(got: Any, expected: Any, hidden: Sequence[str]) -> str | None:
    """Say in what scores differ, but in places that differ from one time to the next anyway."""
    mine, other = places(got), places(expected)
    for place in {**mine, **other}:
        if re.sub(r"\[\d+\]", "[*]", place) in hidden:
            continue
        if mine.get(place) != other.get(place):
            return f"{place}: got {mine.get(place)}, expected {other.get(place)}"
    return None


class Steps:
    """Drives a coroutine, and does something at each of its waits."""

    def __init__(self, coroutine: Any, waiting: Callable[[int], Any] = lambda _: None) -> None:
        self.coroutine, self.waiting = coroutine, waiting

    def __await__(self) -> Generator[Any, Any, Any]:
        steps, value, error, number = self.coroutine.__await__(), None, None, 0
        while True:
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            number += 1
            self.waiting(number)
            value = error = None
            try:
                value = yield step
            except BaseException as raised:
                error = raised


async def held(hook: Any, each: ScoringContext) -> dict[str, float]:
    """Score a completion; return the most that a step on the event loop waited, and worked."""
    loop, longest = asyncio.get_running_loop(), {"waited": 0.0, "worked": 0.0}

    def timed(schedule: Any, place: int) -> Any:
        def scheduled(*given: Any, **options: Any) -> Any:
            def step(*arguments: Any) -> None:
                began = perf_counter(), thread_time()
                try:
                    given[place](*arguments)
                finally:
                    worked = thread_time() - began[1]
                    longest["worked"] = max(longest["worked"], worked)
                    waited = perf_counter() - began[0] - worked
                    longest["waited"] = max(longest["waited"], waited)

            return schedule(*given[:place], step, *given[place + 1 :], **options)

        return scheduled

    async def score() -> Any:
        return await hook.score(each)

    # Every step of a task is one of these, and so is every callback.
    for name, place in ("call_soon", 0), ("call_soon_threadsafe", 0), ("call_at", 1):
        setattr(loop, name, timed(getattr(loop, name), place))
    await asyncio.wait([asyncio.ensure_future(score())], timeout=60)
    return longest


async def cut(make: Any, text: str, wait: int, turns: int) -> tuple[Any, str, int]:
    """Cancel a hook's second call, at one of its waits and so many turns of the event loop later.

    Return for how long it went on, what it did, and how many tasks are left of it.
    """
    hook = make()
    await hook.score(context("first"))
    await asyncio.sleep(0)
    loop, before = asyncio.get_running_loop(), asyncio.all_tasks()
    times: list[float] = []

    def cancel(left: int) -> None:
        if left:
            loop.call_soon(cancel, left - 1)
        elif not task.done():
            task.add_done_callback(lambda _: times.append(perf_counter()))
            times.append(perf_counter())
            task.cancel()

    def waiting(number: int) -> None:
        if number == wait:
            loop.call_soon(cancel, turns)

    task = asyncio.ensure_future(Steps(hook.score(context(text)), waiting))
    await asyncio.wait({task}, timeout=30)
    if not task.done():
        task.cancel()
        return 30.0, "went on for 30 s", 1
    for _ in range(4):
        await asyncio.sleep(0)
    left = len(asyncio.all_tasks() - before)
    what = "was cancelled" if task.cancelled() else f"raised {task.exception()!r}"
    if not task.cancelled() and task.exception() is None:
        what = f"returned {task.result()!r}"
    return (times[1] - times[0] if len(times) > 1 else None), what, left


def check_made(make: Any) -> str | None:
    """Two instances can be made, outside an event loop."""
    for time in ("the first", "the second"):
        try:
            make()
        except Exception as error:
            traceback.print_exc()
            what = f"making {time} instance raised {type(error).__name__}: {error}"
            return f"{what}\nexpected: it raises nothing, outside an event loop"
    return None


def read(make: Any, name: str) -> Any:
    """Return an attribute of the hook, or what reading it raises."""
    try:
        return getattr(make(), name)
    except Exception as error:
        return error


def check_name(make: Any) -> str | None:
    """The name is a text that is not blank, the same for every instance."""
    value = read(make, "name")
    good = isinstance(value, str) and value.strip() and value == make().name
    return None if good else f"name is {value!r}\nexpected: a text, the same for every instance"


def check_blocking(make: Any) -> str | None:
    """The attribute blocking is True or False."""
    value = read(make, "blocking")
    return None if isinstance(value, bool) else f"blocking is {value!r}\nexpected: True or False"


def check_timeout_ms(make: Any) -> str | None:
    """The attribute timeout_ms is an int of 1 to the milliseconds of a day."""
    value = read(make, "timeout_ms")
    good = isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 86_400_000
    return None if good else f"timeout_ms is {value!r}\nexpected: an int of 1 to 86_400_000"


def check_on_error(make: Any) -> str | None:
    """The attribute on_error is 'block' or 'allow'."""
    value = read(make, "on_error")
    good = value in ("block", "allow")
    return None if good else f"on_error is {value!r}\nexpected: 'block' or 'allow'"


def check_score(make: Any) -> str | None:
    """Its score takes one argument and is awaited."""
    score = make().score
    what = f"score is {score!r}"

    async def main() -> bool:
        answer = score(context("a text"))
        if fits := inspect.isawaitable(answer):
            await answer
        return fits

    try:
        inspect.signature(score).bind(None)
        if asyncio.run(main()):
            return None
    except TypeError as error:
        what = f"score: {error}"
    return f"{what}\nexpected: it takes one argument and is awaited, async def score(self, ctx)"


def check_constant(make: Any, texts: list[str]) -> str | None:
    """The hook says the same of itself before and after calls."""
    names, hook = ("name", "blocking", "timeout_ms", "on_error"), make()
    before = {name: getattr(hook, name, None) for name in names}
    scored(hook, *map(context, texts))
    after = {name: getattr(hook, name, None) for name in names}
    if after == before:
        return None
    return f"after calls the hook says {after} of itself\nexpected: {before}, as before"


def unfit(value: Any, place: str = "scores") -> str | None:
    """Say what JSON cannot hold, or return None."""
    if isinstance(value, dict):
        keys = [key for key in value if not isinstance(key, str)]
        parts = [unfit(item, f"{place}[{key!r}]") for key, item in value.items()]
        return f"{place} has the key {keys[0]!r}" if keys else next(filter(None, parts), None)
    if isinstance(value, list | tuple):
        parts = [unfit(item, f"{place}[{index}]") for index, item in enumerate(value)]
        return next(filter(None, parts), None)
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is {value}"
    plain = value is None or isinstance(value, str | int | float | bool)
    return None if plain else f"{place} is {value!r}"


def check_json(make: Any, text: str, **more: Any) -> str | None:
    """JSON can hold the scores."""
    (got,) = scored(make(), context(text, **more))
    what = unfit(got) if isinstance(got, dict) else f"score returned {got!r}"
    expected = "a dict with str keys that holds nothing but JSON values"
    return f"{what:.300}\nexpected: {expected}" if what else None


def check_decides(make: Any, text: str, *, blocks: bool, **changes: Any) -> str | None:
    """The hook blocks what it must block, and lets everything else through."""
    hook = make()
    (got,) = scored(hook, context(text, **changes))
    asks = isinstance(got, dict) and bool(got.get("block"))
    if asks is blocks and (hook.blocking or not blocks):
        return None
    what = f"with blocking = {hook.blocking} the text got {got!r:.300}"
    return f"{what}\nexpected: {'a' if blocks else 'no'} truthy 'block'"


def alike(got: Any, wanted: Any) -> bool:
    """Tell whether scores are the same, but for rounding."""
    if isinstance(got, dict) and isinstance(wanted, dict):
        return got.keys() == wanted.keys() and all(alike(got[key], wanted[key]) for key in got)
    if isinstance(got, list | tuple) and isinstance(wanted, list | tuple):
        return len(got) == len(wanted) and all(map(alike, got, wanted))
    if all(isinstance(each, int | float) for each in (got, wanted)):
        return math.isclose(got, wanted, rel_tol=1e-4, abs_tol=1e-4)
    return bool(got == wanted)


def check_says(make: Any, text: str, scores: dict[str, Any], **more: Any) -> str | None:
    """The text gets the scores that the author says it must get."""
    (got,) = scored(make(), context(text, **more))
    for name, value in scores.items():
        if not isinstance(got, dict) or not alike(got.get(name), value):
            return f"the text got {got!r:.300}\nexpected: {name!r} is {value!r:.300}"
    return None


def check_replacement(make: Any, text: str) -> str | None:
    """The replacement is a text that is not empty, or None."""
    (got,) = scored(make(), context(text))
    new = got.get("replacement") if isinstance(got, dict) and got.get("block") else None
    if new != "" and isinstance(new, str | None):
        return None
    return f"the replacement is {new!r:.300}\nexpected: a text that is not empty, or None"


def check_scores(make: Any, text: str, **more: Any) -> str | None:
    """The completion gets scores."""
    (got,) = scored(make(), context(text, **more))
    if not isinstance(got, Exception):
        return None
    traceback.print_exception(got)
    return f"score raised {type(got).__name__}: {got}\nexpected: scores"


def check_reads(make: Any, text: str) -> str | None:
    """The context is only read."""
    fields = {"tenant": "a", "tags": ["x"]}
    each = context(text, extra_fields=fields, request_metadata=copy.deepcopy(fields))
    before = copy.deepcopy(vars(each))
    scored(make(), each)
    changed = [name for name, value in vars(each).items() if before.get(name) != value]
    if vars(each) == before:
        return None
    return f"score changed {', '.join(changed)} of its context\nexpected: the context is only read"


def check_steady(make: Any, text: str) -> str | None:
    """The same completion gets the same scores."""
    first, *others = [scored(make(), context(text))[0] for _ in range(8)]
    for other in others:
        if what := apart(other, first, ()):
            return f"the same completion, scored again, got other scores\n  {what}"
    return None


def check_held(make: Any, text: str, what: str) -> str | None:
    """No step of score keeps the event loop for more than 50 ms."""
    longest = [asyncio.run(held(make(), context(text)))[what] for _ in range(4)]
    # A busy machine holds anybody up now and then: the shortest of several counts.
    if min(longest) <= 0.05:
        return None
    found = f"score {what} {min(longest) * 1000:.0f} ms on the event loop"
    return f"{found}\nexpected: at most 50 ms at a time"


def check_in_time(make: Any, text: str) -> str | None:
    """The hook scores within its timeout_ms."""
    limit, seconds = make().timeout_ms / 1000, []
    for _ in range(4):
        began = perf_counter()
        with suppress(asyncio.TimeoutError):
            asyncio.run(asyncio.wait_for(make().score(context(text)), limit + 2))
        seconds.append(perf_counter() - began)
    if min(seconds) <= limit:
        return None
    what = f"score took {min(seconds) * 1000:.0f} ms"
    return f"{what}\nexpected: at most {limit * 1000:.0f} ms, which are its timeout_ms"


def check_ends(make: Any, text: str, wait: int, turns: int) -> str | None:
    """A call that is cancelled ends at once."""
    found = ""
    for _ in range(4):
        seconds, what, _left = asyncio.run(cut(make, text, wait, turns))
        if seconds is None or (what == "was cancelled" and seconds <= 0.05):
            return None
        found = f"a call that was cancelled {what:.200}, {seconds * 1000:.0f} ms later"
    return f"{found}\nexpected: it ends within 50 ms, with CancelledError"


def check_left(make: Any, text: str) -> str | None:
    """No call leaves a task behind."""

    async def main() -> list[int]:
        hook, found = make(), []
        for number in range(8):
            before = asyncio.all_tasks()
            await hook.score(context(f"{text} {number}"))
            for _ in range(4):
                await asyncio.sleep(0)
            found.append(len(asyncio.all_tasks() - before))
        return found

    found = asyncio.run(main())
    return f"calls left so many tasks behind: {found}\nexpected: none" if all(found) else None


def check_left_cut(make: Any, text: str, wait: int, turns: int) -> str | None:
    """A call that is cancelled leaves no task behind."""
    _seconds, _what, tasks = asyncio.run(cut(make, text, wait, turns))
    what = f"a call that was cancelled left {tasks} task(s) behind"
    return f"{what}\nexpected: none" if tasks else None
