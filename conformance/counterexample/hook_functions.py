# SPDX-License-Identifier: Apache-2.0
"""What the programs of classifier hooks stand on: contexts, calls, and comparing scores.

They need the hook and the standard library: a context is a data class of the program's own.  A
program holds the functions that it calls, and no others.
"""

from __future__ import annotations

_CONTEXT = '''\
@dataclasses.dataclass(frozen=True)
class ScoringContext:
    """A finished completion, as hooks are told of it."""

    request_id: str
    prompt: str
    generated_text: str
    finish_reason: str
    prompt_token_ids: tuple
    output_token_ids: tuple
    extra_fields: MappingProxyType
    request_metadata: MappingProxyType
    index: int = 0
    stop_reason: int | str | None = None
    logprobs: tuple | None = None
    cumulative_logprob: float | None = None
    prompt_logprobs: tuple | None = None
'''

_OF_TEXT = '''\
def context(text: str, request_id: str = "id-0", **changes) -> ScoringContext:
    """Return the context of a completion that says a text."""
    fields = {
        "request_id": request_id,
        "prompt": "Say something.",
        "generated_text": text,
        "finish_reason": "stop",
        "prompt_token_ids": (1, 3, 4),
        "output_token_ids": (*(ord(c) % 500 + 3 for c in text[:512]), 2),
        "extra_fields": MappingProxyType({}),
        "request_metadata": MappingProxyType({}),
        **changes,
    }
    return ScoringContext(**fields)
'''

_NEW = '''\
def new():
    """Return the hook, as an engine registers it."""
    return Plugin(**ARGUMENTS)
'''

_SCORED = '''\
def scored(hook, *contexts: ScoringContext) -> list:
    """Return the scores of completions, one after the other; exceptions where there are none."""

    async def main() -> list:
        found = []
        for each in contexts:
            try:
                found.append(copy.deepcopy(await asyncio.wait_for(hook.score(each), 60)))
            except Exception as error:
                found.append(error)
        return found

    return asyncio.run(main())
'''

_PLACES = '''\
def places(value, place: str = "scores") -> dict:
    """Return what scores hold, by the place where it stands."""
    if isinstance(value, dict):
        parts = [(f"{place}[{key!r}]", item) for key, item in value.items()]
    elif isinstance(value, (list, tuple)):
        parts = [(f"{place}[{index}]", item) for index, item in enumerate(value)]
    else:
        return {place: repr(value)}
    return {where: leaf for part in parts for where, leaf in places(part[1], part[0]).items()}
'''

_APART = '''\
def apart(got, expected) -> str | None:
    """Say in what two scores differ, or return None."""
    mine, other = places(got), places(expected)
    for place in {**mine, **other}:
        if re.sub(r"\\[\\d+\\]", "[*]", place) in HIDDEN:
            continue
        if mine.get(place) != other.get(place):
            return f"{place}: got {mine.get(place)}, expected {other.get(place)}"
    return None
'''

_STEPS = '''\
class Steps:
    """Drives a coroutine, and does something at each of its waits."""

    def __init__(self, coroutine, waiting=lambda number: None) -> None:
        self.coroutine, self.waiting, self.longest = coroutine, waiting, [0.0, 0.0]

    def __await__(self):
        steps, value, error, number = self.coroutine.__await__(), None, None, 0
        while True:
            began = perf_counter(), thread_time()
            try:
                step = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                worked = thread_time() - began[1]
                waited = perf_counter() - began[0] - worked
                self.longest = [max(pair) for pair in zip(self.longest, (waited, worked))]
            number += 1
            self.waiting(number)
            value = error = None
            try:
                value = yield step
            except BaseException as raised:
                error = raised
'''

_DRIVEN = '''\
async def driven(steps: Steps):
    """Return what a coroutine returns that is driven step by step."""
    return await steps
'''

_CUT = '''\
async def cut(hook, each: ScoringContext, wait: int, turns: int):
    """Cancel a call at one of its waits; return how long it went on, what it did, and the tasks."""
    loop, before, times = asyncio.get_running_loop(), asyncio.all_tasks(), []

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

    task = asyncio.create_task(driven(Steps(hook.score(each), waiting)))
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
'''

_TOGETHER = '''\
async def together(hook, calls: list) -> list:
    """Begin each call a number of turns of the loop after the one before; some are cancelled."""

    def begin(text: str, name: str, leaves: int) -> asyncio.Task:
        steps = Steps(hook.score(context(text, name)))
        task = asyncio.create_task(driven(steps))
        loop = asyncio.get_running_loop()
        steps.waiting = lambda n: loop.call_soon(task.cancel) if n == leaves else None
        return task

    tasks = []
    for text, name, turns, leaves in calls:
        tasks.append(begin(text, name, leaves))
        for _ in range(turns):
            await asyncio.sleep(0)
    await asyncio.wait(tasks, timeout=30)
    found = []
    for task in tasks:
        if not task.done():
            found.append("never got its scores")
        else:
            lost = task.cancelled() or task.exception()
            found.append(repr(lost) if lost else copy.deepcopy(task.result()))
    for task in tasks:
        task.cancel()
    return found
'''

#: In the order in which they stand in a program.
FUNCTIONS = {
    "ScoringContext": _CONTEXT,
    "context": _OF_TEXT,
    "new": _NEW,
    "scored": _SCORED,
    "places": _PLACES,
    "apart": _APART,
    "Steps": _STEPS,
    "driven": _DRIVEN,
    "cut": _CUT,
    "together": _TOGETHER,
}
