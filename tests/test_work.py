# SPDX-License-Identifier: Apache-2.0
"""Tests of counting the instructions that a call executes."""

from __future__ import annotations

from conformance.counterexample.work_player import executed


def _work(rounds: int) -> None:
    for number in range(rounds):
        _one(number)


def _one(number: int) -> int:
    return number + 1


def test_every_count_is_the_same_the_first_too() -> None:
    """Whichever Python it is, and whether anything was counted before."""

    # Made here: what has run before is counted otherwise by some releases of Python.
    def work() -> None:
        for number in range(20):
            _one(number)

    first, second, third = executed(work), executed(work), executed(work)
    assert first == second == third > 20 * 4


def test_the_count_is_proportional_to_the_work() -> None:
    """Ten times as many rounds are ten times as many instructions."""
    few, many = executed(lambda: _work(100)), executed(lambda: _work(1000))
    assert 9.5 < many / few < 10


def test_other_threads_count_for_nothing() -> None:
    """A thread that works meanwhile changes no figure."""
    import threading

    def both() -> None:
        other = threading.Thread(target=_work, args=(10_000,))
        other.start()
        other.join()

    assert executed(both) < 10_000
