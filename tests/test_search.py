# SPDX-License-Identifier: Apache-2.0
"""Looking for examples that show something, and for the smallest of them."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis import strategies as st

from conformance.search import Effort, draw, examples, smallest
from conformance.settings import Budget

NUMBERS = st.integers(0, 10_000)
PATIENT = Effort((20, 100, 300))
QUICK, STANDARD = Budget.QUICK, Budget.STANDARD


def _large(number: int) -> int | None:
    return number if number >= 1_000 else None


def test_a_seed_gives_the_same_examples() -> None:
    """And another seed gives others."""
    assert examples(NUMBERS, 20, 1) == examples(NUMBERS, 20, 1)
    assert examples(NUMBERS, 20, 1) != examples(NUMBERS, 20, 2)


def test_what_shows_something_is_made_small() -> None:
    """Down to the least that still shows it."""
    _, found = smallest(NUMBERS, _large, PATIENT, budget=STANDARD, seed=1)

    assert found == 1_000


def test_examples_that_are_known_come_first() -> None:
    """One of them that shows something is neither made smaller nor followed by others."""
    first = (3, 5_000, 7)
    seen, found = smallest(NUMBERS, _large, PATIENT, budget=STANDARD, seed=1, first=first)

    assert (seen, found) == (2, 5_000)


def test_what_shows_nothing_costs_what_the_budget_says() -> None:
    """Every example is judged once."""
    for budget, most in zip(Budget, PATIENT.examples, strict=True):
        seen, found = smallest(NUMBERS, lambda _: None, PATIENT, budget=budget, seed=1)

        assert (seen, found) == (most, None)


def test_when_the_seconds_are_over_the_fewest_examples_do() -> None:
    """A plugin that takes long is judged by as many as the quick budget has."""
    effort = Effort((20, 100, 300), (0.0, 0.0, 0.0))
    seen, _ = smallest(NUMBERS, lambda _: None, effort, budget=STANDARD, seed=1)

    assert seen == 20


@pytest.mark.parametrize("most", [0, 5])
def test_making_small_ends_where_the_effort_says(most: int) -> None:
    """The smallest of those that were judged is returned, though Hypothesis had not finished."""
    effort = Effort((20, 100, 300), shrinking=(most, most, most))
    judged: list[int] = []

    def judge(number: int) -> int | None:
        judged.append(number)
        return _large(number)

    seen, found = smallest(NUMBERS, judge, effort, budget=QUICK, seed=1, size=int)

    assert seen == len(judged) <= 20 + most
    assert found == min(filter(_large, judged))


def test_what_does_not_show_again_was_shown() -> None:
    """A plugin that fails once has failed."""
    calls = count()
    seen, found = smallest(
        NUMBERS, lambda n: n if next(calls) == 10 else None, PATIENT, budget=QUICK, seed=1
    )

    assert seen > 10
    assert found is not None


def test_what_ends_the_process_is_not_tried_again() -> None:
    """Whoever raises no ``Exception`` is called once."""
    calls: list[int] = []

    def stop(number: int) -> None:
        calls.append(number)
        raise SystemExit

    with pytest.raises(SystemExit):
        draw(NUMBERS, stop, 20, 1, shrinks=True)
    assert len(calls) == 1
