# SPDX-License-Identifier: Apache-2.0
"""Checks for which a plugin need not, or cannot, be asked: what they say all the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs

from conformance.counterexample import of_loading
from conformance.generations import named
from conformance.running.trials import Check
from conformance.verdict import Cause, RuleResult, Verdict, must_wait, unjudged

#: What is known of a run by now.
Results = Mapping[Check, RuleResult]


def foregone(check: Check, results: Results) -> RuleResult | None:
    """Judge a check by what other kinds of evidence showed, and by whether the plugin loads."""
    plugin = check.plugin
    if plugin.broken:
        return _not_loaded(check, plugin.broken)
    elsewhere = [
        found
        for earlier, found in results.items()
        if earlier.plugin == plugin and earlier.evidence is not check.evidence
    ]
    if lacking := [found for found in elsewhere if found.unavailable]:
        same = (found.cause for found in lacking if found.rule == check.rule)
        why = next(same, None) or must_wait([lacking[0].rule])
        return unjudged(check.rule, check.evidence, why)
    survival = named(plugin.generation).survival_rule
    if any(found.verdict is Verdict.FAIL and found.rule == survival for found in elsewhere):
        # The same call would hang in an engine and in a server, and show nothing new.
        return unjudged(check.rule, check.evidence, must_wait([survival]))
    return None


def after_the_end(
    check: Check, message: str, results: Results, pending: Iterable[Check]
) -> RuleResult:
    """Judge a check whose trial has ended: the rule about survival fails, and others wait for it.

    Where nothing of that rule is left to ask, the check itself fails.
    """
    survival = named(check.plugin.generation).survival_rule
    known = [c for c in results if c.plugin == check.plugin and c.rule == survival]
    if any(results[c].verdict is Verdict.FAIL for c in known):
        return unjudged(check.rule, check.evidence, must_wait([survival], message))
    others = [p for p in pending if p != check and p.rule == survival]
    if check.rule == survival or not any(p.plugin == check.plugin for p in others):
        return RuleResult(check.rule, Verdict.FAIL, check.evidence, 1, 1, 0.0, message)
    return unjudged(check.rule, check.evidence, must_wait([survival], message))


def _not_loaded(check: Check, why: str) -> RuleResult:
    """Judge a check of a plugin that could not be loaded."""
    plugin, rule = check.plugin, named(check.plugin.generation).loading_rule
    if check.rule != rule:
        return unjudged(check.rule, check.evidence, must_wait([rule]))
    if plugin.unavailable:
        return unjudged(check.rule, check.evidence, Cause("missing here", why))
    refused = RuleResult(rule, Verdict.FAIL, check.evidence, 1, 0, 0.0, why)
    return attrs.evolve(refused, counterexample=of_loading(plugin))
