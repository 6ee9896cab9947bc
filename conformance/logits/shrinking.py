# SPDX-License-Identifier: Apache-2.0
"""The smallest history that breaks a rule, of those that were looked for."""

from __future__ import annotations

from contextlib import suppress

from hypothesis.errors import HypothesisException

from conformance.inputs import edits, history
from conformance.inputs.history import History
from conformance.logits.requests import Stock
from conformance.logits.sweeps import Example, Strata, count_of, generate, hung
from conformance.logits.variation import smaller
from conformance.search import STRATUM, Found
from conformance.settings import Budget


def minimise(strata: Strata, bench: Stock, rule: str, failing: Example, budget: Budget) -> Example:
    """Return the smallest example found that breaks the rule in the same stratum."""
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
        if rule in example.rules():
            if history.size(drawn) < history.size(best.history):
                best = example
            raise Found

    # Running out of examples in the middle of shrinking looks flaky to Hypothesis; what it
    # found so far has been played here and stands.
    with suppress(Found, HypothesisException):
        count = count_of(strata, failing.shape, budget)
        generate(bench, failing.shape, count, body, shrinks=True)
    if best is failing:
        best = _reduced(strata, bench, rule, failing, STRATUM.smaller(budget))
    return _plainest(strata, bench, rule, best)


def _reduced(strata: Strata, bench: Stock, rule: str, failing: Example, left: float) -> Example:
    """Return an example with less in it: one that is a variation cannot be drawn again."""
    found = True
    while found:
        found = False
        for less in smaller(failing.history):
            left -= 1
            if left < 0:
                return failing
            example = strata.run(bench, failing.shape, less)
            if rule in example.rules() and history.size(less) < history.size(failing.history):
                failing, found = example, True
                break
    return failing


def _plainest(strata: Strata, bench: Stock, rule: str, failing: Example) -> Example:
    """Return the example without what it does not take: its words must not name another cause."""
    for simpler in edits.plainer(failing.history):
        example = strata.run(bench, failing.shape, simpler)
        if rule in example.rules():
            return _plainest(strata, bench, rule, example)
    return failing
