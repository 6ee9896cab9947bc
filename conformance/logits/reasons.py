# SPDX-License-Identifier: Apache-2.0
"""Why a rule cannot be judged of a plugin in the simulator."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from conformance.findings import LEAST_ACTED, few
from conformance.inputs.history import Shape
from conformance.logits import sweeps
from conformance.logits.findings import OFTENER
from conformance.logits.played import Kind
from conformance.logits.sweeps import Example
from conformance.logits.trial import Trial
from conformance.verdict import Reason, must_wait


def waits(trial: Trial, rules: Iterable[str]) -> Reason:
    """Return why a rule cannot be judged before these hold.

    Nobody can see that requests which did not opt in are left alone before one that does is
    known: a profile is what such a rule waits for. Where rows are drawn at random, those that
    differ say nothing about the rules that histories decide.
    """
    rules = tuple(rules)
    if trial.contract.strata.opt_out in rules and not trial.opts_in:
        return trial.unknown_switch()
    about_rows = {*trial.contract.strata.rule_of.values()}
    if about_rows.intersection(rules) and trial.random:
        rules = (*(rule for rule in rules if rule not in about_rows), trial.contract.steady)
    return must_wait(rules)


def blocking(trial: Trial) -> frozenset[str]:
    """Return the rules about single calls that some example breaks."""
    kinds = trial.contract.strata.blocking
    return frozenset(
        rule
        for example in trial.examples()
        for trouble, broken in example.troubles()
        if trouble.kind in kinds
        for rule in broken
    )


def blocked(trial: Trial) -> Reason:
    """Return which rules about single calls must hold before another one can be judged."""
    return waits(trial, sorted(blocking(trial)))


def unknown_rows(trial: Trial, rule: str, failing: Sequence[Example]) -> Reason | None:
    """Return why the rows that break a rule cannot be judged, or None."""
    if all(_only_rows(example, rule) for example in failing) and trial.random:
        return waits(trial, [trial.contract.steady])
    troubles = (each for example in failing for each in example.troubles())
    oracles = (t.message for t, broken in troubles if rule in broken and t.kind is Kind.ORACLE)
    return next(oracles, None)


def _only_rows(example: Example, rule: str) -> bool:
    """Tell whether nothing breaks the rule but rows that are not those of the request alone."""
    kinds = (Kind.ROW, Kind.MEANING)
    return all(t.kind in kinds for t, broken in example.troubles() if rule in broken)


def against_a_pass(trial: Trial, shape: Shape | None, examples: Sequence[Example]) -> Reason:
    """Say what stands in the way of a pass, or nothing.

    In its own stratum any trouble stands in a rule's way; a rule about single calls looks at
    what was called, and is only stopped by what nothing can be seen behind.
    """
    faulty = [example for example in examples if example.played.faults]
    kinds = {trouble.kind for example in faulty for trouble in example.played.faults}
    if (kinds if shape else kinds & trial.contract.strata.blocking) or not examples:
        # It is not about this rule, but what would have come after it is unknown.
        return waits(trial, sorted({owner for example in faulty for owner in example.rules()}))
    if not trial.parameters.on:
        return trial.unknown_switch()
    # A plugin that did something too rarely shows too little for a pass to mean anything.
    acted, least = sweeps.acted(examples), LEAST_ACTED[trial.budget]
    return f"{few(acted, len(examples), least)}; {OFTENER}" if 0 < acted < least else ""
