# SPDX-License-Identifier: Apache-2.0
"""Driving a coroutine step by step: timing its steps, stopping at a wait, slowing it down."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Generator
from typing import Any

import attrs

from conformance.clocks import clocks, gave_way
from conformance.interruption import in_call

#: Seconds of a pause, and how many there are within a coroutine that is slowed down.
PAUSE, PAUSES = 0.002, 20


@attrs.define
class Stretches:
    """Drives a coroutine and times each stretch in which it holds the event loop."""

    coroutine: Any
    slowly: bool = False  #: whether clocks that it reads are to go on in the meantime
    stop: int = 0  #: the wait at which `stopped` is called, the first being 1
    stopped: Callable[[], Any] | None = None
    waited: float = 0.0  #: seconds that a stretch neither worked nor could have, at the most
    worked: float = 0.0  #: seconds of processor time of a stretch, at the most
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
            before, ways = clocks(), gave_way()
            try:
                with in_call("score"):
                    if pauses is not None:
                        sys.setprofile(pauses)
                    waits_for = iterator.send(value) if error is None else iterator.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                if pauses is not None:
                    sys.setprofile(None)
                self._measure(before, waited=gave_way() > ways)
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

    def _measure(self, before: tuple[float, float, float], *, waited: bool) -> None:
        wall, worked, delayed = (now - then for now, then in zip(clocks(), before, strict=True))
        # Who waits gives way; who only works is held up by others, of which not all systems tell.
        if waited:
            self.waited = max(self.waited, wall - worked - delayed)
        self.worked = max(self.worked, worked)


@attrs.define
class _Pauses:
    """Holds up each of the first calls of functions; a profile function."""

    left: int = PAUSES

    def __call__(self, _frame: object, event: str, _argument: object) -> None:
        if event in ("call", "c_call") and self.one_more():
            time.sleep(PAUSE)

    def one_more(self) -> bool:
        """Tell whether there is one more pause, and take it."""
        self.left -= 1
        return self.left >= 0
