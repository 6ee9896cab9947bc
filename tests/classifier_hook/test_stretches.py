# SPDX-License-Identifier: Apache-2.0
"""What is measured of a hook's steps does not turn on how busy the machine is."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import pytest
from support import DEFECTIVE_HOOK, certify, gallery

from conformance.classifier_hook import attributes
from conformance.classifier_hook.calls import one, run
from conformance.coverage import lines
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching import clocks, stretches
from conformance.watching.stretches import Stretches

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from conformance.classifier_hook.calls import Call
    from conformance.worker import Zygote


SLEEP = 0.005


async def _works() -> None:
    sum(range(1000))


async def _sleeps() -> None:
    time.sleep(SLEEP)  # noqa: ASYNC251 - that is the fault


@pytest.mark.parametrize(("hook", "waits"), [(_works, False), (_sleeps, True)])
def test_who_only_works_never_waits(
    monkeypatch: pytest.MonkeyPatch, hook: Callable[[], Awaitable[None]], waits: bool
) -> None:
    """On a system that does not tell who is held up by others, each step of whom takes a second."""
    seconds = itertools.count()
    monkeypatch.setattr(stretches, "clocks", lambda: (float(next(seconds)), 0.0, 0.0))
    # Another process may have had its turn by force, or a page of memory had to be read.
    shortest = []
    for _ in range(5):
        driven = Stretches(hook())
        asyncio.run(driven.run())
        shortest.append(driven.longest.waited)

    assert (min(shortest) == 1.0) is waits


@pytest.mark.parametrize(("delayed", "waits"), [(2 * SLEEP, False), (0.0, True)])
def test_who_waits_for_a_thread_that_has_no_processor_does_not_wait(
    monkeypatch: pytest.MonkeyPatch, delayed: float, waits: bool
) -> None:
    """On a busy machine a thread begins late, and whoever starts it goes on when it has begun."""
    told = iter([{0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0, 2: delayed, 3: 0.5 * delayed}])
    monkeypatch.setattr(clocks, "_delays", lambda: next(told))
    driven = Stretches(_sleeps())
    with stretches.regarding_threads():
        asyncio.run(driven.run())

    assert (driven.longest.waited >= SLEEP / 2) is waits


def _awaits() -> Awaitable[object]:
    return asyncio.create_task(_sleeps())


def _groups() -> Awaitable[object]:
    async def within() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(_sleeps())

    return asyncio.gather(within(), _works())


def _calls_back() -> Awaitable[object]:
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def begin() -> None:
        asyncio.create_task(_sleeps()).add_done_callback(over.set_result)

    loop.call_soon(begin)
    return over


def _batches() -> Awaitable[object]:
    loop = asyncio.get_running_loop()
    over = loop.create_future()

    def flush() -> None:
        time.sleep(SLEEP)
        over.set_result(None)

    loop.call_later(0.001, flush)
    return over


def _hears_of_it() -> Awaitable[object]:
    task = asyncio.ensure_future(asyncio.sleep(0))
    task.add_done_callback(lambda _: time.sleep(SLEEP))
    return asyncio.sleep(0.001)


def _asks_from_a_thread() -> Awaitable[object]:
    loop = asyncio.get_running_loop()
    return asyncio.to_thread(lambda: asyncio.run_coroutine_threadsafe(_sleeps(), loop).result(5))


class _Hook:
    """A hook whose score is what is given."""

    def __init__(self, made: Callable[[], Awaitable[object]]) -> None:
        self.made = made

    async def score(self, _context: object) -> dict[str, object]:
        """Wait for it."""
        await self.made()
        return {}


@pytest.mark.parametrize(
    "made",
    [_sleeps, _awaits, _groups, _calls_back, _batches, _hears_of_it, _asks_from_a_thread],
)
def test_tasks_and_callbacks_of_a_call_are_timed_as_the_call_itself(
    made: Callable[[], Awaitable[object]],
) -> None:
    """Whatever is scheduled within a call, and however, what it waits is the plugin's."""
    call: Call = run(one(_Hook(made), None, 5.0), 10.0)

    assert call.good
    # A part of it may be counted as held up by others, who were in turn when it was over.
    assert call.waited >= SLEEP / 2


def test_tasks_of_others_are_not_the_call_s() -> None:
    """What the harness does on the loop while the plugin waits is no fault of the plugin."""

    async def main() -> Call:
        task = asyncio.create_task(one(_Hook(lambda: asyncio.sleep(0.01)), None, 5.0))
        await asyncio.sleep(0)
        for _ in range(3):
            await asyncio.create_task(_sleeps_long())
        return await task

    call: Call = run(main(), 10.0)

    assert call.good
    assert call.waited < 0.05


async def _sleeps_long() -> None:
    time.sleep(0.06)  # noqa: ASYNC251 - the harness holds the loop
    await asyncio.sleep(0)


HOOK = """\
import asyncio


class Hook:
    @property
    def name(self):
        return "named"

    async def score(self, ctx):
        return {"letters": await asyncio.create_task(self.count(ctx))}

    async def count(self, ctx):
        return len(ctx)
"""


def test_lines_of_tasks_and_of_attributes_are_watched(tmp_path: Path) -> None:
    """What runs in a task of a call, or where an attribute is read, has run."""
    path = tmp_path / "hook.py"
    path.write_text(HOOK, encoding="utf-8")
    names: dict[str, type] = {}
    exec(compile(HOOK, str(path), "exec"), names)  # noqa: S102 - the text above
    hook = names["Hook"]()
    sheet = lines.Sheet.laid(tmp_path / "sheet", [str(path)])
    lines.watch(sheet)
    try:
        assert run(one(hook, "a text", 5.0), 10.0).good
        attributes.Seen(hook, "name").name  # noqa: B018 - a property
    finally:
        lines.forget()

    assert {7, 10, 13} <= sheet.ran()[str(path)]


def test_a_crowd_that_holds_the_loop_is_no_fault_of_another_rule(
    zygote: Zygote, tmp_path: Path
) -> None:
    """Calls of which each sleeps for long are late together, of which CH-20 tells alone."""
    name = "sleeps_in_what_it_gathers"
    specimen = next(each for each in gallery(DEFECTIVE_HOOK) if each.name == name)
    rules = {"CH-20", "CH-31", "CH-33"}
    results = certify(zygote, specimen, tmp_path, rules=rules, budget=Budget.QUICK)

    assert {rule: found.verdict for rule, found in results.items()} == {
        "CH-20": Verdict.FAIL,
        "CH-31": Verdict.PASS,
        "CH-33": Verdict.PASS,
    }
