# SPDX-License-Identifier: Apache-2.0
"""The process in which nothing has been done with a plugin."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from conformance.watching.untouched import ERRANDS, Ended, Untouched

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Plugin:
    calls = 0


def _count(plugin: type[Any], _errand: object) -> int:
    plugin.calls += 1
    return int(plugin.calls)


def _exit(_plugin: type[Any], errand: Any) -> None:  # noqa: ANN401 - any errand
    os._exit(errand.status)


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Untouched]:
    """A process that knows how to count and how to exit."""
    monkeypatch.setitem(ERRANDS, "count", _count)
    monkeypatch.setitem(ERRANDS, "exit", _exit)
    process = Untouched.fork(_Plugin)
    yield process
    process.close()


def test_no_errand_feels_another(untouched: Untouched) -> None:
    """What one did to the class has not happened for the next."""
    counts = [untouched.run(SimpleNamespace(what="count")) for _ in range(3)]
    assert counts == [1, 1, 1]


@pytest.mark.parametrize("status", [0, 1, 3])
def test_an_errand_that_exits_is_the_only_one_to_fail(untouched: Untouched, status: int) -> None:
    """Whoever asked is told, and the next errand is done."""
    with pytest.raises(EOFError):
        untouched.run(SimpleNamespace(what="exit", status=status))
    assert untouched.run(SimpleNamespace(what="count")) == 1


def _pid(_plugin: type[Any], _errand: object) -> int:
    return os.getpid()


def _kill(_plugin: type[Any], _errand: object) -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(0)


def test_errands_are_done_while_others_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is answered once, in whatever order it is asked for."""
    for name, function in (("pid", _pid), ("count", _count), ("exit", _exit)):
        monkeypatch.setitem(ERRANDS, name, function)
    process = Untouched.fork(_Plugin)
    try:
        first, second, bad = (SimpleNamespace(what=what) for what in ("pid", "count", "exit"))
        bad.status = 0
        process.begin([first, bad, second])

        assert process.run(SimpleNamespace(what="count")) == 1
        assert process.run(second) == 1
        pid = process.run(first)
        with pytest.raises(Ended, match="status 0"):
            process.run(bad)
        assert process.run(first) != pid  # anew
    finally:
        process.close()


def test_who_ends_those_that_were_begun_is_the_only_one_to_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A plugin may kill the process that its own came from."""
    monkeypatch.setitem(ERRANDS, "kill", _kill)
    monkeypatch.setitem(ERRANDS, "count", _count)
    process = Untouched.fork(_Plugin)
    try:
        begun = [SimpleNamespace(what="kill"), SimpleNamespace(what="count")]
        process.begin(begun)

        for errand in begun:
            with pytest.raises(Ended):
                process.run(errand)
        assert process.run(SimpleNamespace(what="count")) == 1
    finally:
        process.close()
