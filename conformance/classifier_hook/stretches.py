# SPDX-License-Identifier: Apache-2.0
"""Driving a coroutine step by step: timing its steps, stopping at a wait, slowing it down."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import TYPE_CHECKING, Any

import attrs

from conformance.interruption import in_call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

#: Seconds of a pause, and how many there are within a coroutine that is slowed down.
PAUSE, PAUSES = 0.002, 20

_SCHEDULING = "/proc/thread-self/schedstat"


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
            before = clocks()
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
                self._measure(before)
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

    def _measure(self, before: tuple[float, float, float]) -> None:
        wall, worked, delayed = (now - then for now, then in zip(clocks(), before, strict=True))
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


def clocks() -> tuple[float, float, float]:
    """Return seconds: of the clock, of work by this thread, and of its waiting for a processor."""
    return time.perf_counter(), time.thread_time(), _delayed()


def _delayed() -> float:
    """Return for how long this thread could have worked and had no processor; 0.0 if unknown."""
    try:
        with open(_SCHEDULING, encoding="ascii") as file:  # noqa: PTH123 - at every step
            return int(file.read().split()[1]) / 1e9
    except (OSError, LookupError, ValueError):
        return 0.0
