# SPDX-License-Identifier: Apache-2.0
"""Limits of processor time are those of an ordinary machine."""

from __future__ import annotations

import time

import pytest

from conformance.parser import hostile
from conformance.watching import clocks
from conformance.watching.interruption import PluginHung


def test_a_slow_machine_is_told_by_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast one is an ordinary one; moments in which it is faster or slower do not count."""
    usual = 4 * [clocks.USUAL]
    took = iter(
        [*usual, 3 * clocks.USUAL, *(9.0, 9.0, 9.0, 9.0), *usual, 1e-9, *(0.0, 0.0, 0.0, 0.0)]
    )
    monkeypatch.setattr(clocks, "_work", lambda: next(took))

    assert clocks.slowness() == pytest.approx(3.0)
    assert clocks.slowness() == 1.0


def test_work_is_measured() -> None:
    """It takes some time, and far less than a limit."""
    assert 0.0001 < clocks._work() < 1.0


@pytest.mark.parametrize(("slowness", "stalls"), [(1.0, True), (2.0, False)])
def test_a_call_stalls_by_the_time_of_an_ordinary_machine(
    monkeypatch: pytest.MonkeyPatch, slowness: float, *, stalls: bool
) -> None:
    """Parsers whose time grows with the square of an answer stalled on slow machines alone."""
    _takes(monkeypatch, 1.5 * hostile.STALL, 1.5 * hostile.STALL)
    monkeypatch.setattr(clocks, "slowness", lambda: slowness)

    if not stalls:
        assert hostile.brief("the parser", lambda: None) == 1.5 * hostile.STALL
        return
    with pytest.raises(PluginHung):
        hostile.brief("the parser", lambda: None)


def test_a_call_is_measured_once_more_without_watching_its_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A parser with many short functions took twice its time, and stalled only where watched."""
    _takes(monkeypatch, 1.5 * hostile.STALL, 0.75 * hostile.STALL)
    monkeypatch.setattr(clocks, "slowness", lambda: 1.0)

    assert hostile.brief("the parser", lambda: None) == 0.75 * hostile.STALL


def _takes(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Have measurements of processor time take so long, one after the other."""
    now = iter([each for took in seconds for each in (0.0, took)])
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
