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
    now = iter([0.0, 1.5 * hostile.STALL])
    monkeypatch.setattr(time, "thread_time", lambda: next(now))
    monkeypatch.setattr(clocks, "slowness", lambda: slowness)

    if not stalls:
        assert hostile.brief("the parser", lambda: None) == 1.5 * hostile.STALL
        return
    with pytest.raises(PluginHung):
        hostile.brief("the parser", lambda: None)
