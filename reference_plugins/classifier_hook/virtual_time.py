# SPDX-License-Identifier: Apache-2.0
"""An event loop whose clock jumps to the next timer, for tests of hooks and of their timeouts.

Seconds pass in no time, and always the same number of them.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

_T = TypeVar("_T")


class Deadlock(Exception):
    """Everything waits, and no timer will end it."""


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An event loop that never sleeps.

    Threads and connections have no place in it: it does not wait for them.
    """

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))

    def time(self) -> float:
        """Return the seconds that have passed."""
        return self.now


class _Selector(selectors.SelectSelector):
    def __init__(self, loop: VirtualTimeLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:  # noqa: ANN401 - as selectors have it
        events = super().select(0)
        if not events:
            if timeout is None:
                raise Deadlock("all tasks wait for something that no timer brings about")
            # To the microsecond, so that sums of times read well.
            self._loop.now = round(self._loop.now + max(timeout, 0.0), 6)
        return events


def run(main: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
    """Run a coroutine function in virtual time that starts at zero, and return its result.

    Raises:
        AssertionError: it left tasks behind.
        Deadlock: everything waits, and no timer will end it.

    """

    async def watched() -> _T:
        result = await main()
        # Those that were just cancelled end in the next round.
        await asyncio.sleep(0)
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"tasks left behind: {left}"
        return result

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(watched())
