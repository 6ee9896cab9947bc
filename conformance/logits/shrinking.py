# SPDX-License-Identifier: Apache-2.0
"""The smallest history that breaks a rule, of those that were looked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hypothesis.errors import HypothesisException

from conformance.inputs import edits, history
from conformance.inputs.history import History
from conformance.logits.requests import Stock
from conformance.logits.sweeps import Example, Strata, count_of, generate, hung
from conformance.logits.variation import smaller
from conformance.search import STRATUM, Found
from conformance.settings import Budget


def minimise(
    strata: Strata,
    bench: Stock,
    rule: str,
    failing: Example,
    budget: Budget,
    *,
    needed: Callable[[Example], bool] = lambda _: True,
) -> Example:
    """Return the smallest example found that breaks the rule in the same stratum.

    Args:
        strata: those of the generation.
        bench: the plugin with what it is tried on.
        rule: what is broken.
        failing: the example to begin with.
        budget: how many histories.
        needed: tells of an example that breaks the rule whether what the stratum is about is to
            blame; others do not count.

    """

    def breaks(example: Example) -> bool:
        return rule in example.rules() and needed(example)

    if hung(failing):
        return failing
    best = failing
    left = STRATUM.smaller(budget)

    def body(drawn: History) -> None:
        nonlocal best, left
        left -= 1
        if left < 0:
            return
        example = strata.run(bench, failing.shape, drawn)
        if breaks(example):
            if history.size(drawn) < history.size(best.history):
                best = example
            raise Found

    # Running out of examples in the middle of shrinking looks flaky to Hypothesis; what it
    # found so far has been played here and stands.
    with suppress(Found, HypothesisException):
        count = count_of(strata, failing.shape, budget)
        generate(bench, failing.shape, count, body, shrinks=True)
    if best is failing:
        best = _reduced(strata, bench, breaks, failing, STRATUM.smaller(budget))
    return _plainest(strata, bench, breaks, best)


def _reduced(
    strata: Strata, bench: Stock, breaks: Callable[[Example], bool], failing: Example, left: float
) -> Example:
    """Return an example with less in it: one that is a variation cannot be drawn again."""
    for less in smaller(failing.history):
        left -= 1
        if left < 0:
            break
        example = strata.run(bench, failing.shape, less)
        if history.size(less) < history.size(failing.history) and breaks(example):
            return _reduced(strata, bench, breaks, example, left)
    return failing


def _plainest(
    strata: Strata, bench: Stock, breaks: Callable[[Example], bool], failing: Example
) -> Example:
    """Return the example without what it does not take: its words must not name another cause."""
    for simpler in edits.plainer(failing.history):
        example = strata.run(bench, failing.shape, simpler)
        if breaks(example):
            return _plainest(strata, bench, breaks, example)
    return failing
