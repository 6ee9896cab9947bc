# SPDX-License-Identifier: Apache-2.0
"""Single calls of ``score``, and several at a time, on an event loop of their own."""

from __future__ import annotations

import asyncio
import copy
import importlib
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any
from weakref import WeakSet

import attrs

from conformance.classifier_hook.traffic import Arrival
from conformance.watching.clocks import undelayed
from conformance.watching.interruption import OutOfTime, PluginExited, PluginHung, limited
from conformance.watching.raised import said
from conformance.watching.stretches import Stretches, watch


def runtime(module: str) -> Any:  # noqa: ANN401 - a module of the runtime
    """Return a module of the runtime that scores completions; it imports vLLM."""
    return importlib.import_module(f"reference_plugins.classifier_hook.{module}")


#: Turns of the event loop in which tasks that were cancelled, or are done, end.
TURNS = 4

#: Seconds for which a call that was cancelled is waited for.
ENDS = 1.0

#: Seconds for which tasks, and threads, that a run leaves behind are waited for.
TASKS_END, THREADS_END = 0.1, 2.0

_THREADS = "classifier hook"

#: Tasks that callbacks of the event loop made, and not a call.
_of_callbacks: WeakSet[asyncio.Task[Any]] = WeakSet()


@attrs.frozen
class Call:
    """What came of one call."""

    value: Any = None  #: what it returned
    error: BaseException | None = None
    cancelled: bool = False
    waited: float = 0.0  #: seconds that its longest step kept the event loop waiting
    worked: float = 0.0  #: seconds of processor time of its longest step
    #: From its beginning, or its cancellation, to its end, but for waiting for a processor.
    seconds: float = 0.0
    waits: int = 0  #: how often it gave way to others
    left: int = 0  #: tasks that it left behind
    ended: bool = True

    @property
    def good(self) -> bool:
        """Whether there are scores."""
        return self.ended and self.error is None and not self.cancelled

    def trouble(self) -> str:
        """Say why there are no scores."""
        if not self.ended:
            return "never got its scores"
        if self.cancelled:
            return "was cancelled"
        assert self.error is not None
        return f"raised {said(self.error)}"


def asked(hook: object, context: object) -> Coroutine[Any, Any, Any]:
    """Return a call as the runtime makes it."""
    call: Coroutine[Any, Any, Any] = runtime("dispatch").asked(hook, context)
    return call


def run(main: Coroutine[Any, Any, Any], seconds: float) -> Any:  # noqa: ANN401 - what it returns
    """Run a coroutine on an event loop of its own, for a limited time.

    ``asyncio.run`` would wait for tasks that swallow their cancellation, and for threads, however
    long they take.

    Raises:
        PluginExited: the hook raised ``SystemExit``.
        PluginHung: a call holds the event loop and does not return.

    """
    loop = asyncio.new_event_loop()
    threads = ThreadPoolExecutor(thread_name_prefix=_THREADS)
    loop.set_default_executor(threads)
    loop.set_task_factory(_make_task)
    watch(loop)
    # It would write about tasks that were left behind: a rule of their own is about them.
    loop.set_exception_handler(lambda *_: None)
    try:
        asyncio.set_event_loop(loop)
        with limited(seconds):
            return loop.run_until_complete(main)
    except SystemExit as error:
        raise PluginExited(
            f"score raised SystemExit({error.code}), which ends the server"
        ) from None
    finally:
        with suppress(SystemExit, PluginHung, TimeoutError), limited(TASKS_END + THREADS_END):
            loop.run_until_complete(_over(loop))
        asyncio.set_event_loop(None)
        loop.close()
        threads.shutdown(wait=False, cancel_futures=True)
        until = time.monotonic() + THREADS_END
        for thread in threading.enumerate():
            if thread.name.startswith(_THREADS):
                thread.join(max(0.0, until - time.monotonic()))


def _make_task(
    loop: asyncio.AbstractEventLoop,
    coroutine: Any,  # noqa: ANN401 - a coroutine, or a generator that is one
    /,
    **named: Any,  # noqa: ANN401 - what a release of Python has
) -> asyncio.Task[Any]:
    task = asyncio.Task(coroutine, loop=loop, **named)
    if asyncio.current_task(loop) is None:
        _of_callbacks.add(task)
    return task


def _left(before: set[asyncio.Task[Any]]) -> int:
    """Return how many tasks a call left behind, by those that there were before it.

    A callback, such as that of a timer, makes a task for all calls that wait by then.  Such a batch
    ends by itself, and has to go on when one of these calls is cancelled.
    """
    return len(asyncio.all_tasks() - before - set(_of_callbacks))


async def _over(loop: asyncio.AbstractEventLoop) -> None:
    if left := asyncio.all_tasks() - {asyncio.current_task()}:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=TASKS_END)
    await loop.shutdown_asyncgens()


async def one(hook: object, context: object, patience: float, *, slowly: bool = False) -> Call:
    """Call once, and wait for it, for so many seconds at the most."""
    before = asyncio.all_tasks()
    stretches = Stretches(asked(hook, context), slowly=slowly)
    started = undelayed()
    task = asyncio.create_task(stretches.run())
    await asyncio.wait({task}, timeout=patience)
    seconds = undelayed() - started
    if not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=ENDS)
        return Call(ended=False, seconds=seconds)
    await turns(TURNS)
    left = _left(before)
    return attrs.evolve(
        _told(task),
        waited=stretches.longest.waited,
        worked=stretches.longest.worked,
        seconds=seconds,
        waits=stretches.waits,
        left=left,
    )


async def row(hook: object, contexts: Iterable[Any], patience: float) -> list[Call]:
    """Call for one context after the other."""
    calls = []
    for context in contexts:
        call = await one(hook, context, patience)
        calls.append(attrs.evolve(call, value=copy.deepcopy(call.value)))
    return calls


async def cancelled(
    hook: object,
    context: object,
    point: tuple[int, int],
    patience: float,
) -> Call | None:
    """Call once, and cancel; None if the call was over before.

    Args:
        hook: what is called.
        context: for which.
        point: at which of its waits it is cancelled, the first being 1, and how many turns of the
            event loop later.
        patience: seconds for the call to come there.

    """
    before = asyncio.all_tasks()
    wait, more = point
    gone = asyncio.Event()
    times: list[float] = []
    answers: list[asyncio.Future[Any]] = []
    stretches = Stretches(asked(hook, context), stop=wait)
    task = asyncio.create_task(stretches.run())

    def cancel(more: int) -> None:
        if more:
            task.get_loop().call_soon(cancel, more - 1)
        elif not task.done():
            answers.extend(_answers(stretches.coroutine))
            task.add_done_callback(lambda _: times.append(undelayed()))
            times.append(undelayed())
            task.cancel()
            gone.set()

    # Not within the step that waits: it has not given way yet.
    stretches.stopped = lambda: task.get_loop().call_soon(cancel, more)
    waiting = asyncio.create_task(gone.wait())
    await asyncio.wait({task, waiting}, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait({task}, timeout=ENDS)
    waiting.cancel()
    await turns(TURNS)
    if not gone.is_set():
        task.cancel()
        return None
    if not task.done():
        return Call(ended=False)
    left = _left(before)
    if any(answer.done() and not answer.cancelled() for answer in answers):
        return Call(cancelled=True, left=left)
    return attrs.evolve(_told(task), seconds=times[1] - times[0], left=left)


def _answers(coroutine: object) -> Iterator[asyncio.Future[Any]]:
    """Yield what ``asyncio.wait_for`` waits for, within a coroutine.

    Until Python 3.12 it prefers an answer of the same moment to a cancellation, for which no hook
    can be blamed.
    """
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None)
        if frame is not None and frame.f_code is asyncio.wait_for.__code__:
            answer = frame.f_locals.get("fut")
            if asyncio.isfuture(answer):
                yield answer
        coroutine = getattr(coroutine, "cr_await", None)


async def many(
    hook: object,
    contexts: Sequence[Any],
    arrivals: Sequence[Arrival],
    patience: float,
) -> list[Call]:
    """Call for several contexts, beginning and cancelling each as its arrival says."""
    tasks = []
    for context, arrival in zip(contexts, arrivals, strict=True):
        tasks.append(begun(hook, context, arrival.leaves))
        await turns(arrival.turns)
    await asyncio.wait(tasks, timeout=patience)
    return [ended(task) for task in tasks]


def begun(hook: object, context: object, leaves: int) -> asyncio.Task[Any]:
    """Begin a call that is cancelled at one of its waits, the first being 1, or at none for 0."""
    stretches = Stretches(asked(hook, context), stop=leaves)
    task = asyncio.create_task(_copied(stretches))
    stretches.stopped = lambda: task.get_loop().call_soon(task.cancel)
    return task


async def _copied(stretches: Stretches) -> tuple[object, float]:
    """Return what a call returned, and its seconds from its first step on."""
    started = undelayed()
    value = await stretches.run()
    seconds = undelayed() - started
    # As the runtime does, so that what later calls do to it shows by the rule about that.
    return copy.deepcopy(value), seconds


def ended(task: asyncio.Task[Any]) -> Call:
    """Return what has come of a call that was begun."""
    if not task.done():
        return Call(ended=False)
    call = _told(task)
    if not call.good:
        return call
    value, seconds = call.value
    return attrs.evolve(call, value=value, seconds=seconds)


async def turns(number: int) -> None:
    """Let the event loop turn."""
    for _ in range(number):
        await asyncio.sleep(0)


def _told(task: asyncio.Task[Any]) -> Call:
    """Return what came of a task that is done.

    Raises:
        PluginHung: it held the event loop and was interrupted.
        OutOfTime: it was interrupted while it held nothing.

    """
    if task.cancelled():
        return Call(cancelled=True)
    error = task.exception()
    if isinstance(error, PluginHung | OutOfTime):
        raise error
    return Call(error=error) if error else Call(task.result())
