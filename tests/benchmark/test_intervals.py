# SPDX-License-Identifier: Apache-2.0
"""Intervals of paired measurements: what is there is found, and what is not is not."""

from __future__ import annotations

import random

import pytest

from conformance.benchmark.intervals import LEAST_PAIRS, Interval, difference, interval, ratio

RUNS = 200


def _noisy(seed: int, count: int, factor: float = 1.0) -> list[float]:
    """Return durations with a spread of 20 %, and a slow stretch that lasts for several."""
    draw = random.Random(seed)
    slow = range(count // 3, count // 2)
    return [
        factor * draw.lognormvariate(0, 0.2) * (2 if number in slow else 1)
        for number in range(count)
    ]


def test_the_same_distribution_is_rarely_different() -> None:
    """At 99 % at most a few of two hundred intervals leave zero out."""
    wrong = [
        seed
        for seed in range(RUNS)
        if ratio(_noisy(seed, 120), _noisy(seed + RUNS, 120), seed=seed).beyond(0.0)
    ]
    assert len(wrong) <= RUNS * 0.04


def test_a_tenth_more_is_found() -> None:
    """Three hundred pairs with a spread of 20 % show 10 %."""
    found = [
        ratio(_noisy(seed, 300, 1.10), _noisy(seed + RUNS, 300), seed=seed) for seed in range(RUNS)
    ]
    assert sum(one.low > 0 for one in found) >= RUNS * 0.9
    assert sum(one.low <= 0.10 <= one.high for one in found) >= RUNS * 0.95


def test_a_difference_keeps_the_unit() -> None:
    """Every pair differs by two, and so does the median."""
    first = [float(value) for value in range(2, 22)]
    assert difference(first, [value - 2 for value in first], seed=1) == Interval(2.0, 2.0, 2.0)


def test_the_same_seed_gives_the_same_interval() -> None:
    """Nothing else is random."""
    values = _noisy(3, 50)
    assert interval(values, seed=5) == interval(values, seed=5)
    assert interval(values, seed=5) != interval(values, seed=6)


def test_too_few_pairs_are_refused() -> None:
    """No interval is made up."""
    with pytest.raises(ValueError, match="5 pairs are too few"):
        interval([1.0] * (LEAST_PAIRS - 1), seed=0)


@pytest.mark.parametrize(
    ("bounds", "floor", "beyond"),
    [
        ((0.02, 0.05, 0.08), 0.01, True),
        ((0.02, 0.05, 0.08), 0.03, False),
        ((-0.08, -0.05, -0.02), 0.01, True),
        ((-0.01, 0.01, 0.03), 0.0, False),
    ],
)
def test_all_of_an_interval_must_be_beyond_the_noise(
    bounds: tuple[float, float, float], floor: float, beyond: bool
) -> None:
    """On one side or the other."""
    assert Interval(*bounds).beyond(floor) is beyond
