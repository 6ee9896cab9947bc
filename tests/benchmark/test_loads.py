# SPDX-License-Identifier: Apache-2.0
"""The batches that are measured."""

from __future__ import annotations

import pytest

from conformance.benchmark.loads import Load, growing, plan
from conformance.settings import Budget


@pytest.mark.parametrize("budget", list(Budget))
def test_no_load_is_measured_twice(budget: Budget) -> None:
    """Each differs from every other one."""
    loads = plan(budget)
    assert len(set(loads)) == len(loads)
    assert len({load.name for load in loads}) == len(loads)


def test_the_standard_plan_spans_what_servers_run() -> None:
    """One request to 1,024, 32 k tokens to 256 k, nobody to everybody, steady and churning."""
    loads = plan(Budget.STANDARD)
    assert {min(load.requests for load in loads), max(load.requests for load in loads)} == {1, 1024}
    assert {load.vocabulary for load in loads} >= {32_000, 256_000}
    assert {load.share for load in loads} >= {0.0, 0.01, 0.5, 1.0}
    assert {load.churning for load in loads} == {True, False}


def test_growth_is_told_from_loads_that_vary_size_alone() -> None:
    """The same share opts in, and nobody comes or goes."""
    loads = growing(plan(Budget.STANDARD))
    assert len({load.share for load in loads}) == 1
    assert not any(load.churning for load in loads)
    assert len({load.requests for load in loads}) > 3
    assert len({load.vocabulary for load in loads}) > 3


@pytest.mark.parametrize(
    ("requests", "share", "expected"),
    [(256, 0.5, 128), (256, 1.0, 256), (256, 0.0, 0), (256, 0.01, 2), (16, 0.01, 1), (1, 0.5, 1)],
)
def test_a_share_of_the_requests_opts_in(requests: int, share: float, expected: int) -> None:
    """As many as it says, and one at least where there is a share at all."""
    load = Load(requests, 32_000, share)
    assert sum(load.opted_in(row) for row in range(requests)) == expected
