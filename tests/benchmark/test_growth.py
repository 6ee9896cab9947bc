# SPDX-License-Identifier: Apache-2.0
"""The growth that a fit names is the one that the costs were made with."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from conformance.benchmark import growth, loads
from conformance.settings import Budget

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds of a step by requests and vocabulary, of processors as people write them.
COSTS: dict[str, list[Callable[[int, int], float]]] = {
    "constant": [lambda _b, _v: 12e-6],
    "linear in vocabulary": [lambda _b, v: 8e-6 + 2e-9 * v],
    "linear in batch": [lambda b, _v: 5e-6 + 1e-6 * b, lambda b, _v: 2e-6 + 40e-6 * b],
    "linear in batch x vocabulary": [
        lambda b, v: 20e-6 + 1e-9 * b * v,
        lambda b, v: 20e-6 + 1e-6 * b + 0.3e-9 * b * v,
    ],
    "quadratic in batch": [lambda b, _v: 10e-6 + 50e-9 * b * b],
    "quadratic in batch x vocabulary": [lambda b, v: 10e-6 + 1e-11 * b * b * v],
}


@pytest.mark.parametrize("budget", [Budget.STANDARD, Budget.DEEP])
@pytest.mark.parametrize(
    ("name", "cost"), [(name, cost) for name, costs in COSTS.items() for cost in costs]
)
def test_growth_is_named(budget: Budget, name: str, cost: Callable[[int, int], float]) -> None:
    """With 10 % of noise, from the loads of a run, for twenty seeds."""
    measured = loads.growing(loads.plan(budget))
    for seed in range(20):
        draw = random.Random(seed)
        cells = [
            (
                load.requests,
                load.vocabulary,
                cost(load.requests, load.vocabulary) * draw.uniform(0.9, 1.1),
            )
            for load in measured
        ]
        assert growth.fit(cells).name == name, seed


def test_what_is_fitted_tells_seconds() -> None:
    """A constant, and so much for each request."""
    found = growth.fit([(b, 32_000, 5e-6 + 1e-6 * b) for b in (1, 4, 16, 64, 256)])
    assert found.constant == pytest.approx(5e-6, rel=1e-3)
    assert found.slope == pytest.approx(1e-6, rel=1e-3)
    assert found.error < 1e-6
