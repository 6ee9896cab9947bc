# SPDX-License-Identifier: Apache-2.0
"""Tests of counting the instructions that a call executes."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from conformance.counterexample import cost_scripts
from conformance.logits.work import instructions

Counter = Callable[[Callable[[], None]], int]


def _by_harness(call: Callable[[], None]) -> int:
    with instructions() as counted:
        call()
    return counted.count


def _by_program() -> Counter:
    names: dict[str, Counter] = {}
    exec("import sys\n" + cost_scripts._INSTRUCTIONS, names)  # noqa: S102 - what the programs hold
    return names["monitored" if sys.version_info >= (3, 12) else "traced"]


def _work(rounds: int) -> None:
    for number in range(rounds):
        _one(number)


def _one(number: int) -> int:
    return number + 1


@pytest.mark.parametrize("counter", [_by_harness, _by_program()], ids=["harness", "program"])
def test_every_count_is_the_same_the_first_too(counter: Counter) -> None:
    """Whichever Python it is, and whether anything was counted before."""

    # Made here: what has run before is counted otherwise by some releases of Python.
    def work() -> None:
        for number in range(20):
            _one(number)

    first, second, third = counter(work), counter(work), counter(work)
    assert first == second == third > 20 * 4


@pytest.mark.parametrize("counter", [_by_harness, _by_program()], ids=["harness", "program"])
def test_the_count_is_proportional_to_the_work(counter: Counter) -> None:
    """Ten times as many rounds are ten times as many instructions."""
    few, many = counter(lambda: _work(100)), counter(lambda: _work(1000))
    assert 9.5 < many / few < 10


def test_other_threads_count_for_nothing() -> None:
    """A thread that works meanwhile changes no figure."""
    import threading

    def both() -> None:
        other = threading.Thread(target=_work, args=(10_000,))
        other.start()
        other.join()

    assert _by_harness(both) < 10_000
