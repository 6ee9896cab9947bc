# SPDX-License-Identifier: Apache-2.0
"""What a call does from one wait to the next, in its own task and in what it has the loop do.

Detectors that are asked at once stand in tasks of their own, with ``gather``, in a ``TaskGroup`` or
by ``create_task``, and batches are made in callbacks, with ``call_later``.  All of them hold the
event loop as the call itself does, and they are the plugin's.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import Context, ContextVar
from functools import partial
from typing import Any

import attrs

from conformance.watching.clocks import clocks, delays_of_others, gave_way, longest_delay
from conformance.watching.interruption import in_call

#: Seconds of a pause, and how many there are within a coroutine that is slowed down.
PAUSE, PAUSES = 0.002, 20


@attrs.define
class Longest:
    """The longest stretches in which a call, or what it has the loop do, held the event loop."""

    call: str  #: its name
    #: What limits each stretch by itself.
    limit: Callable[[], AbstractContextManager[None]] = nullcontext
    waited: float = 0.0  #: seconds that a stretch neither worked nor could have, at the most
    worked: float = 0.0  #: seconds of processor time of a stretch, at the most

    def run(self, function: Callable[..., Any], /, *given: Any, **named: Any) -> Any:  # noqa: ANN401 - its own
        """Call a function of the plugin, and measure that."""
        # Tasks, callbacks and threads that it starts meanwhile have a copy of this context.
        mine = _call.set(self)
        others = delays_of_others() if _regards_threads else None
        before, ways = clocks(), gave_way()
        try:
            with self.limit(), in_call(self.call):
                return function(*given, **named)
        finally:
            self._measure(before, others, waited=gave_way() > ways)
            _call.reset(mine)

    def _measure(
        self,
        before: tuple[float, float, float],
        others: Mapping[int, float] | None,
        *,
        waited: bool,
    ) -> None:
        wall, worked, delayed = (now - then for now, then in zip(clocks(), before, strict=True))
        if others is not None:
            delayed += longest_delay(others)
        # Who waits gives way; who only works is held up by others, of which not all systems tell.
        if waited:
            self.waited = max(self.waited, wall - worked - delayed)
        self.worked = max(self.worked, worked)


#: Whose call made what runs; None for the harness.
_call: ContextVar[Longest | None] = ContextVar("conformance_call", default=None)


#: Whether it counts as no wait of a stretch that a thread waits for a processor.
_regards_threads = False


@contextmanager
def regarding_threads() -> Iterator[None]:
    """Count as no wait of a stretch, within the block, that a thread waits for a processor.

    On a busy machine even to start one takes long. Asking takes a millisecond for each stretch.
    """
    global _regards_threads  # noqa: PLW0603 - a process measures one thing
    _regards_threads = True
    try:
        yield
    finally:
        _regards_threads = False


@attrs.define
class Stretches:
    """Drives a coroutine and times each stretch in which it holds the event loop."""

    coroutine: Any
    slowly: bool = False  #: whether clocks that it reads are to go on in the meantime
    stop: int = 0  #: the wait at which `stopped` is called, the first being 1
    stopped: Callable[[], Any] | None = None
    longest: Longest = attrs.field(factory=partial(Longest, "score"))
    waits: int = 0

    async def run(self) -> Any:  # noqa: ANN401 - what the coroutine returns
        """Return what the coroutine returns."""
        return await self

    def __await__(self) -> Generator[Any, Any, Any]:
        value: Any = None
        error: BaseException | None = None
        iterator = self.coroutine.__await__()
        pauses = _Pauses() if self.slowly else None
        while True:
            step: Callable[[Any], Any] = iterator.send if error is None else iterator.throw
            if pauses is not None:
                step = partial(pauses.within, step)
            try:
                waits_for = self.longest.run(step, value if error is None else error)
            except StopIteration as end:
                return end.value
            self.waits += 1
            if self.waits == self.stop and self.stopped is not None:
                self.stopped()
            value, error = None, None
            try:
                value = yield waits_for
                if pauses is not None and pauses.one_more():
                    yield from asyncio.sleep(PAUSE).__await__()
            except BaseException as caught:  # noqa: BLE001 - handed on to the coroutine
                error = caught


@attrs.define
class _Pauses:
    """Holds up each of the first calls of functions; a profile function."""

    left: int = PAUSES

    def __call__(self, _frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call") and self.one_more():
            time.sleep(PAUSE)

    def within(self, step: Callable[[Any], Any], argument: object) -> Any:  # noqa: ANN401 - what is waited for
        """Have a coroutine go on, and hold it up."""
        sys.setprofile(self)
        try:
            return step(argument)
        finally:
            sys.setprofile(None)

    def one_more(self) -> bool:
        """Tell whether there is one more pause, and take it."""
        self.left -= 1
        return self.left >= 0


def watch(loop: asyncio.AbstractEventLoop) -> None:
    """Time whatever a call has a loop do, steps of tasks and callbacks, as the call itself."""

    def timed(schedule: Callable[..., Any], place: int) -> Callable[..., Any]:
        def scheduled(*given: Any, context: Context | None = None) -> Any:  # noqa: ANN401 - as loops have it
            longest = _call.get() if context is None else context.get(_call)
            if longest is not None:
                callback = partial(longest.run, given[place])
                given = (*given[:place], callback, *given[place + 1 :])
            return schedule(*given, context=context)

        return scheduled

    # `call_later` and futures use these; where among the arguments the callback stands.
    for name, place in (("call_soon", 0), ("call_soon_threadsafe", 0), ("call_at", 1)):
        setattr(loop, name, timed(getattr(loop, name), place))
