# SPDX-License-Identifier: Apache-2.0
"""What is measured of a hook's steps does not turn on how busy the machine is."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import pytest

from conformance.classifier_hook import calls
from conformance.classifier_hook.calls import Stretches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def _works() -> None:
    sum(range(1000))


async def _sleeps() -> None:
    time.sleep(0.001)  # noqa: ASYNC251 - that is the fault


@pytest.mark.parametrize(("hook", "waits"), [(_works, False), (_sleeps, True)])
def test_who_only_works_never_waits(
    monkeypatch: pytest.MonkeyPatch, hook: Callable[[], Awaitable[None]], waits: bool
) -> None:
    """On a system that does not tell who is held up by others, each step of whom takes a second."""
    seconds = itertools.count()
    monkeypatch.setattr(calls, "clocks", lambda: (float(next(seconds)), 0.0, 0.0))
    # Another process may have had its turn by force, or a page of memory had to be read.
    shortest = []
    for _ in range(5):
        driven = Stretches(hook())
        asyncio.run(driven.run())
        shortest.append(driven.waited)

    assert (min(shortest) == 1.0) is waits
