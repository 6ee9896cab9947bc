# SPDX-License-Identifier: Apache-2.0
"""All hooks on one completion: at once, each bounded by its own timeout.

``asyncio.wait_for`` would wait until a cancelled hook has ended, for as long as that takes.
Here a hook that is cancelled has `MARGIN` to end in; after it the answer goes out without it.
"""

from __future__ import annotations

import asyncio
import inspect
import time
import traceback
from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook.contract import MARGIN, own
from reference_plugins.classifier_hook.events import CallEnded, CancellationIgnored
from reference_plugins.classifier_hook.scores import (
    InvalidScores,
    blocks,
    copied,
    decided,
    failure,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from reference_plugins.classifier_hook.contract import (
        Entry,
        ExternalClassifierHook,
        ScoringContext,
        Verdict,
    )
    from reference_plugins.classifier_hook.events import Event, Observer, Outcome


#: Seconds by which a timer is late if somebody held the loop.
_LATE = 0.01


class HookExited(Exception):
    """A hook tried to end the process."""


class NoAwaitable(TypeError):
    """``score`` returned something that cannot be awaited."""


async def asked(hook: ExternalClassifierHook, context: ScoringContext) -> Any:  # noqa: ANN401 - checked by `copied`
    """Return what a hook answers to one completion.

    Raises:
        NoAwaitable: ``score`` is no coroutine function, and returned no awaitable either.

    """
    answer: object = hook.score(context)
    if not inspect.isawaitable(answer):
        kind = type(answer).__name__
        raise NoAwaitable(f"`score` must return an awaitable, as `async def` does (got {kind})")
    return await answer


class Dispatcher:
    """Calls hooks and says what happens.

    Args:
        observers: are told of every event; they must not raise and not block.
        clock: seconds, for how long calls and their steps take; timeouts go by the event loop's
            own clock, which some loops round to milliseconds.
        margin: seconds that a cancelled hook has to end in.

    """

    def __init__(
        self,
        observers: Sequence[Observer] = (),
        *,
        clock: Callable[[], float] = time.perf_counter,
        margin: float = MARGIN,
    ) -> None:
        self.observers = list(observers)
        self.clock = clock
        self.margin = margin
        #: scorings at work, by the ids of their requests, which need not be unique
        self.running: dict[str, set[Scoring]] = {}
        #: tasks of hooks that nobody waits for any more
        self.strays: set[asyncio.Task[Any]] = set()

    def start(self, entries: Sequence[Entry], context: ScoringContext) -> Scoring:
        """Call all hooks on one completion; to be awaited by `Scoring.verdict`."""
        return Scoring(self, entries, context)

    def abandon(self, request_id: str) -> None:
        """Cancel all hooks at work on a request that was aborted."""
        for scoring in tuple(self.running.get(request_id, ())):
            scoring.abandon()

    def tell(self, event: Event) -> None:
        """Tell all observers."""
        for observer in self.observers:
            observer(event)


class Scoring:
    """The hooks at work on one completion; made by `Dispatcher.start`."""

    def __init__(
        self, dispatcher: Dispatcher, entries: Sequence[Entry], context: ScoringContext
    ) -> None:
        self._dispatcher = dispatcher
        self._request_id = context.request_id
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._left = len(entries)
        self._calls = [_Call(dispatcher, entry, context, self._settled) for entry in entries]
        dispatcher.running.setdefault(context.request_id, set()).add(self)

    async def verdict(self) -> Verdict | None:
        """Wait for all hooks and return what they say; None if the scoring was abandoned.

        When the caller is cancelled, so are the hooks.
        """
        try:
            scored = await self._over
        except asyncio.CancelledError:
            self.abandon()
            raise
        finally:
            self._forget()
        # The calls know the scoring as well: without this only the collector would free them.
        calls, self._calls = self._calls, []
        if not scored:
            return None
        return decided((call.entry, call.answer, call.failed) for call in calls)

    def abandon(self) -> None:
        """Cancel the hooks that are still at work; nobody wants their scores any more."""
        if not self._over.done():
            self._over.set_result(False)
        for call in self._calls:
            call.abandon()

    def _forget(self) -> None:
        running = self._dispatcher.running
        same = running[self._request_id]
        same.discard(self)
        if not same:
            del running[self._request_id]

    def _settled(self) -> None:
        self._left -= 1
        if not self._left and not self._over.done():
            self._over.set_result(True)


class _Call:
    """One hook at work on one completion."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        entry: Entry,
        context: ScoringContext,
        settled: Callable[[], None],
    ) -> None:
        self.entry = entry
        self.answer: dict[str, Any] = {}
        self.failed = True
        self._dispatcher = dispatcher
        self._context = context
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._started = dispatcher.clock()
        self._timer: asyncio.TimerHandle | None = None
        self._timed_out = False
        self._excused = False  #: whether its time was prolonged
        self._over = False  #: whether its answer is known
        # A copy for each hook: one that changes it changes it for nobody else.
        self._steps = _Steps(self._score(own(context)), dispatcher.clock, self._begin)
        self._task: asyncio.Task[Any] = self._loop.create_task(
            self._steps, name=f"classifier hook {entry.name}"
        )
        self._task.add_done_callback(self._ended)

    async def _score(self, context: ScoringContext) -> Any:  # noqa: ANN401 - checked by `copied`
        try:
            return await asked(self.entry.hook, context)
        except SystemExit as error:
            # It would end the event loop, and every request with it.
            raise HookExited(f"exit with status {error.code}") from error

    def _begin(self) -> None:
        # From its own first step on: what others do before it is not its time.
        self._started = self._dispatcher.clock()
        self._timer = self._loop.call_later(self.entry.timeout, self._expire)

    def _expire(self) -> None:
        assert self._timer is not None
        late = self._loop.time() - self._timer.when()
        if late > _LATE and late > self._steps.longest and not self._excused:
            # Somebody else held the loop, and what this hook waits for may have come meanwhile.
            self._excused = True
            grace = min(late, self._dispatcher.margin)
            self._timer = self._loop.call_later(grace, self._expire)
        elif not self._task.done():
            self._timed_out = True
            self._let_go()

    def abandon(self) -> None:
        """Cancel it, if it is still at work."""
        if not self._over:
            self._over = True
            self._tell("cancelled")
            self._let_go()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self._task.done():
            self._dispatcher.strays.add(self._task)
            self._task.cancel()
            self._timer = self._loop.call_later(self._dispatcher.margin, self._give_up)

    def _give_up(self) -> None:
        context = self._context
        self._dispatcher.tell(
            CancellationIgnored(self.entry.name, context.request_id, context.index)
        )
        self._finish()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._dispatcher.strays.discard(task)
        if self._timer is not None:
            self._timer.cancel()
        if not task.cancelled():
            task.exception()  # asked for, or asyncio complains that nobody did
        self._finish()

    def _finish(self) -> None:
        if self._over:
            return
        self._over = True
        outcome, message = self._judge()
        if message:
            assert outcome in ("timeout", "exception", "invalid")
            self.answer = failure(outcome, message)
        self.failed = bool(message)
        self._tell(outcome, self.answer["error"]["message"] if message else "")
        self._settled()

    def _judge(self) -> tuple[Outcome, str]:
        """Return the outcome, and why there are no scores."""
        # No timer ends work without an await; its answer comes too late all the same.
        if self._timed_out or self._steps.longest > self.entry.timeout:
            return "timeout", f"no scores within {self.entry.timeout * 1000:.0f} ms"
        if self._task.cancelled():
            return "exception", "CancelledError: the hook cancelled itself"
        error = self._task.exception()
        if error is not None:
            return "exception", _sentence(error)
        try:
            self.answer = copied(self._task.result())
        except InvalidScores as invalid:
            return "invalid", str(invalid)
        except Exception as trouble:  # noqa: BLE001 - a dict of its own class may do anything
            return "invalid", f"the scores cannot be read: {_sentence(trouble)}"
        return "ok", ""

    def _tell(self, outcome: Outcome, message: str = "") -> None:
        self._dispatcher.tell(
            CallEnded(
                hook=self.entry.name,
                request_id=self._context.request_id,
                index=self._context.index,
                outcome=outcome,
                seconds=self._dispatcher.clock() - self._started,
                longest_step=self._steps.longest,
                blocks=outcome != "cancelled"
                and blocks(self.entry, self.answer, failed=self.failed),
                message=message,
            )
        )


class _Steps(Coroutine[Any, Any, Any]):
    """A coroutine whose steps, from one await to the next, are timed."""

    def __init__(
        self,
        inner: Coroutine[Any, Any, Any],
        clock: Callable[[], float],
        begin: Callable[[], None],
    ) -> None:
        self.longest = 0.0
        self._inner = inner
        self._clock = clock
        self._begin: Callable[[], None] | None = begin

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as coroutines have it
        if self._begin is not None:
            self._begin()
            self._begin = None
        start = self._clock()
        try:
            return self._inner.send(value)
        finally:
            self.longest = max(self.longest, self._clock() - start)

    def throw(self, *error: Any) -> Any:  # noqa: ANN401 - as coroutines have it
        start = self._clock()
        try:
            return self._inner.throw(*error)
        finally:
            self.longest = max(self.longest, self._clock() - start)

    def close(self) -> None:
        self._inner.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        return self._inner.__await__()


def _sentence(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - an exception of the hook's own class may do anything
        text = "(no text)"
    name = type(error).__name__
    if text or error.__traceback__ is None:
        return f"{name}: {text}" if text else name
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{name} at {Path(place.filename).name}:{place.lineno}"
