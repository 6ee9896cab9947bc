# SPDX-License-Identifier: Apache-2.0
"""Requests finish with their last output, whatever a history has them do."""

from __future__ import annotations

from conformance.inputs.history import Step
from conformance.logits.playing import Endings


def _with(*most: int) -> Endings:
    endings = Endings()
    for name, each in zip("AB", most, strict=False):
        endings.follow(name, each)
    return endings


def test_a_request_finishes_with_its_last_output() -> None:
    """It does so before what the step says of it, and of nobody else."""
    endings = _with(2)
    step = Step(pause=("A", "C"), chunk=(("A", 1),), draft=(("A", 1), ("C", 2)), rest=("A",))

    assert not endings.ended("A", [5])
    assert endings.step(step, {"A": [5], "C": [7]}, free=True) is step
    assert endings.step(step, {"A": [5, 7], "C": [7]}, free=True) == Step(
        finish=("A",), pause=("C",), draft=(("C", 2),)
    )


def test_a_request_finishes_with_a_token_that_ends_it() -> None:
    """That is its last output, however many more it asked for."""
    endings = Endings()
    endings.follow("A", 40, [2, 9])

    assert endings.step(Step(), {"A": [2, 5]}, free=True) == Step()
    assert endings.step(Step(), {"A": [2, 5, 9]}, free=True) == Step(finish=("A",))


def test_what_a_history_says_later_of_a_finished_request_is_dropped() -> None:
    """It is named no more, so that nothing finishes twice."""
    endings = _with(1)
    endings.step(Step(), {"A": [5]}, free=True)

    later = endings.step(Step(finish=("A", "C"), lost=("A",)), {"C": []}, free=True)
    assert later == Step(finish=("C",))


def test_a_history_ends_where_its_shape_lets_nobody_finish() -> None:
    """Unless the step itself has the request finish."""
    outputs = {"A": [5, 7], "B": [9]}

    assert _with(2).step(Step(), outputs, free=False) is None
    assert _with(2).step(Step(finish=("A",)), outputs, free=False) == Step(finish=("A",))
    assert _with(2, 1).step(Step(finish=("A",)), outputs, free=False) is None
