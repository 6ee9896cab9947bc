# SPDX-License-Identifier: Apache-2.0
"""Intervals of paired measurements, and the smallest difference that a run could have seen.

Two things that take turns meet the same disturbances, so the pairs are compared and not the
averages.  Neighbouring pairs resemble each other on a busy machine: the bootstrap draws blocks of
them, since single draws would make intervals too short.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import attrs

#: The share of runs whose interval holds the true value.
CONFIDENCE = 0.99

#: How often the pairs are drawn anew.
RESAMPLES = 2_000

#: Fewer pairs than this tell nothing.
LEAST_PAIRS = 6


@attrs.frozen
class Interval:
    """A median of pairs, and the bounds between which it lies at :data:`CONFIDENCE`."""

    low: float
    median: float
    high: float

    @property
    def reach(self) -> float:
        """How far from zero it goes, on either side."""
        return max(abs(self.low), abs(self.high))

    def beyond(self, floor: float) -> bool:
        """Tell whether all of it is farther from zero than ``floor``."""
        return self.low > floor or self.high < -floor


def interval(pairs: Sequence[float], *, seed: int) -> Interval:
    """Return the interval of the median of paired values, in their unit.

    Args:
        pairs: one value for each pair, in the order in which they were taken.
        seed: of the draws.

    Raises:
        ValueError: there are fewer than :data:`LEAST_PAIRS`.

    """
    # It comes with vLLM: reading what was measured needs none.
    import numpy as np

    values = np.asarray(pairs, dtype=np.float64)
    count = len(values)
    if count < LEAST_PAIRS:
        raise ValueError(f"{count} pairs are too few: {LEAST_PAIRS} are the least.")
    length = max(1, round(count ** (1 / 3)))
    blocks = math.ceil(count / length)
    starts = np.random.default_rng(seed).integers(0, count, (RESAMPLES, blocks, 1))
    # Blocks go on at the beginning, so that every pair is drawn as often as the others.
    drawn = values[((starts + np.arange(length)) % count).reshape(RESAMPLES, -1)[:, :count]]
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(np.median(drawn, axis=1), [tail, 1 - tail])
    return Interval(float(low), float(np.median(values)), float(high))


def ratio(first: Sequence[float], second: Sequence[float], *, seed: int) -> Interval:
    """Return by what part the first of two things takes more than the second; 0.05 is 5 %.

    Args:
        first: what each round took, in any unit; positive.
        second: the same rounds of the other.
        seed: of the draws.

    """
    pairs = [math.log(one / other) for one, other in zip(first, second, strict=True)]
    found = interval(pairs, seed=seed)
    return Interval(*(math.expm1(value) for value in (found.low, found.median, found.high)))


def difference(first: Sequence[float], second: Sequence[float], *, seed: int) -> Interval:
    """Return how much more the first of two things takes than the second, in their unit."""
    pairs = [one - other for one, other in zip(first, second, strict=True)]
    return interval(pairs, seed=seed)
