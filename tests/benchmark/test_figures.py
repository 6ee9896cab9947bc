# SPDX-License-Identifier: Apache-2.0
"""What rounds with a plugin and without it tell."""

from __future__ import annotations

import random

import attrs

from conformance.benchmark.figures import FIGURES, Cost, Overhead, Round, compare
from conformance.benchmark.intervals import Interval
from conformance.benchmark.loads import Load

TURNS = 40


def _turns(slower: float, seed: int = 3) -> list[tuple[Round, Round, Round]]:
    draw = random.Random(seed)

    def round_(factor: float) -> Round:
        noise = draw.lognormvariate(0, 0.05)
        return Round(
            tokens=320,
            requests=10,
            seconds=0.2 * factor * noise,
            first_token=0.01 * noise,
            per_token=0.002 * factor * noise,
            latency=0.15 * factor * noise,
            latency_p99=0.2 * factor * noise,
        )

    return [(round_(1), round_(slower), round_(1)) for _ in range(TURNS)]


def _compared(turns: list[tuple[Round, Round, Round]]) -> dict[str, Overhead]:
    found = compare("server", 8, turns, figures=list(FIGURES), seed=1)
    return {overhead.figure: overhead for overhead in found}


def test_what_is_slower_is_measured() -> None:
    """By about how much, and only where it is."""
    found = _compared(_turns(1.3))
    assert found["seconds per token"].measurable
    assert 0.25 < found["seconds per token"].interval.median < 0.35
    assert not found["time to first token"].measurable


def test_what_is_the_same_is_not_measurable() -> None:
    """And the run says what would have been: more than the rounds differ by."""
    for seed in range(20):
        for overhead in _compared(_turns(1.0, seed)).values():
            assert not overhead.measurable
            assert 0 < overhead.floor < 0.1


def test_a_figure_that_rounds_do_not_have_is_left_out() -> None:
    """An engine without clients has no time to the first token."""
    turns = [(attrs.evolve(one, first_token=None), two, three) for one, two, three in _turns(1.0)]
    assert "time to first token" not in _compared(turns)
    assert "processor seconds per token" not in _compared(turns)


def test_every_figure_is_more_where_it_is_worse() -> None:
    """Seconds, never tokens per second: one side of zero is good in all of them."""
    for overhead in _compared(_turns(1.5)).values():
        assert overhead.interval.median > -0.05
        assert overhead.without > 0


def test_some_thousandths_of_a_step_are_never_a_difference() -> None:
    """Where a machine is so quiet that equal instances can be told apart, nobody is slower."""
    quiet = Interval(-0.001, 0.0, 0.001)
    cost = Cost(
        Load(16, 32_000, 0.5),
        rounds=1834,
        step=Interval(1e-5, 1e-5, 1e-5),
        added=Interval(0.0, 0.0, 0.0),
        same=quiet,
        against=Interval(0.0013, 0.002, 0.0028),
        samples=(),
        waits=None,
    )
    assert cost.against is not None
    assert cost.against.beyond(quiet.reach)
    assert not cost.against.beyond(cost.floor)
    assert Interval(0.045, 0.05, 0.055).beyond(cost.floor)
