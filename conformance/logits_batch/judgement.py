# SPDX-License-Identifier: Apache-2.0
"""From the examples of the strata to the verdict of one rule.

A rule is judged by the examples of its own stratum, or, where it is about single calls, by all.
Where simpler strata are broken, it is not: one fault gives one failure, the nearest to its cause.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance import history
from conformance.logits_batch import batches, strata
from conformance.logits_batch.findings import Finding, failed, passed
from conformance.logits_batch.played import Kind
from conformance.verdict import Verdict, must_wait

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from conformance.history import Shape
    from conformance.logits_batch.simulator import Trial
    from conformance.logits_batch.strata import Example

#: A finding, and the counterexample that shows it.
Judged = tuple[Finding, dict[str, Any] | None]

_SHAPE_OF_RULE = {
    rule: shape for shape, rule in strata.RULE_OF_SHAPE.items() if shape != strata.EVERYTHING
} | {"LB-04": strata.PLAIN}

#: Rules that are judged here.
RULES = frozenset(_SHAPE_OF_RULE) | frozenset(strata.RULE_OF_KIND.values())

#: Kinds of trouble after which nothing else can be told about an example.
BLOCKING = set(strata.RULE_OF_KIND) - {Kind.RAISED}


def judge(trial: Trial, rule: str) -> Judged:
    """Judge a rule by what happened in the histories that are about it.

    Raises:
        LookupError: no history is about the rule.

    """
    if rule not in RULES:
        raise LookupError(f"{rule} has no check in the simulator")
    if rule == "LB-04" and not (trial.parameters.off and trial.parameters.on):
        why = "every request is treated alike: the plugin has no opt-in"
        return Finding(Verdict.NOT_APPLICABLE, message=why), None
    shape = _SHAPE_OF_RULE.get(rule)
    examples = _examples(trial, rule, shape)
    failing = [example for example in examples if rule in example.rules()]
    acted = sum(bool(example.played.acted) for example in examples)
    if failing and (first := _look_first(trial, rule, shape)):
        return Finding(Verdict.NOT_VERIFIED, len(examples), acted, must_wait(first)), None
    if failing:
        return _failure(trial, rule, examples, failing)
    if why := _obstacle(trial, shape, examples):
        return Finding(Verdict.NOT_VERIFIED, len(examples), acted, why), None
    return passed(len(examples), acted), None


def first_failure(trial: Trial, rule: str) -> int | None:
    """Return how many examples it took until one broke the rule; None if none did."""
    examples = _examples(trial, rule, _SHAPE_OF_RULE.get(rule))
    broken = (number for number, e in enumerate(examples, 1) if rule in e.rules())
    return next(broken, None)


def _examples(trial: Trial, rule: str, shape: Shape | None) -> list[Example]:
    """Return the examples that a rule is judged by."""
    if shape is None:
        return trial.examples()
    examples = trial.stratum(shape)
    if rule == "LB-09":
        # The stratum makes it likely; trouble with None shows anywhere.
        return examples + [e for e in trial.examples() if e.shape != shape and rule in e.rules()]
    if rule == "LB-03" and not any(e.played.troubles for e in trial.examples()):
        return examples + trial.stratum(strata.EVERYTHING)
    return examples


def _look_first(trial: Trial, rule: str, shape: Shape | None) -> list[str]:
    """Return the rules that a failure of this one follows from."""
    if rule == "LB-16" and batches.minds_inference_mode(trial.bench):
        return ["LB-29"]
    return _simpler(trial, strata.BUILT_ON.get(shape, ())) if shape else []


def _failure(
    trial: Trial, rule: str, examples: Sequence[Example], failing: Sequence[Example]
) -> Judged:
    """Return the failure with the smallest history that shows it."""
    smallest = min(failing, key=lambda example: history.size(example.history))
    if not trial.survey:
        smallest = strata.minimise(trial.bench, rule, smallest, trial.budget)
    trouble = next(t for t in smallest.played.troubles if rule in smallest.broken_by(t))
    message = f"{trouble.message} ({smallest.shape.title})"
    acted = sum(bool(example.played.acted) for example in examples)
    return failed(message, len(examples), acted), trial.case(smallest, trouble)


def _obstacle(trial: Trial, shape: Shape | None, examples: Sequence[Example]) -> str:
    """Say what stands in the way of a pass, or nothing.

    In its own stratum any trouble stands in a rule's way; a rule about single calls looks at
    what was called, and is only stopped by what nothing can be seen behind.
    """
    kinds = {trouble.kind for example in examples for trouble in example.played.troubles}
    if (kinds if shape else kinds & BLOCKING) or not examples:
        # Not about this rule, yet nobody knows what would have come after.
        return must_wait(sorted({owner for example in examples for owner in example.rules()}))
    return "" if trial.parameters.on else trial.unknown_switch()


def _simpler(trial: Trial, shapes: Iterable[Shape]) -> list[str]:
    """Return the rules that are broken in strata which another one is made of."""
    return list(
        dict.fromkeys(
            rule
            for shape in shapes
            for example in trial.stratum(shape)
            for rule in sorted(example.rules())
            if rule in (strata.RULE_OF_SHAPE[shape], "LB-04", "LB-09", "LB-14", "LB-16")
        )
    )
