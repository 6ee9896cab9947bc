# SPDX-License-Identifier: Apache-2.0
"""From the examples of the strata to the verdict of one rule.

A rule is judged by the examples of its own stratum, or, where it is about single calls, by all.
Where simpler strata are broken, it is not: one fault gives one failure, the nearest to its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from conformance.findings import Finding, failed, passed, unjudged
from conformance.generations import named
from conformance.inputs import edits, history
from conformance.inputs.history import Shape
from conformance.logits import reasons, sweeps
from conformance.logits.cases import history_case
from conformance.logits.configuration import MAX_REQUESTS
from conformance.logits.shrinking import minimise
from conformance.logits.sweeps import Example
from conformance.logits.trial import Trial
from conformance.rules import Level
from conformance.verdict import Verdict

#: What happens in a step and makes the difference between strata.
_EVENTS = ("pause", "chunk", "rest", "draft", "lost")

#: As many failing histories of a stratum, at most, are played without what happens in them.
_PLAYED_PLAINLY = 8

#: A finding, and the counterexample that shows it.
Judged = tuple[Finding, dict[str, Any] | None]


def _shape(trial: Trial, rule: str) -> Shape | None:
    strata = trial.contract.strata
    return strata.plain if rule == trial.contract.strata.opt_out else strata.about(rule)


def events_of(shape: Shape) -> list[str]:
    """Return what happens in the steps of a stratum, besides that requests join and advance."""
    return [name for name in _EVENTS if getattr(shape, name)]


def judge(trial: Trial, rule: str) -> Judged:
    """Judge a rule by what happened in the histories that are about it.

    Raises:
        LookupError: no history is about the rule.

    """
    contract = trial.contract
    if rule not in contract.judged:
        raise LookupError(f"{rule} has no check in the simulator")
    why = contract.inapplicable(trial, rule)
    if rule == contract.means and trial.bench.meaning is None:
        why = "the profile has no `expected`"
    if rule == contract.strata.opt_out and not trial.opts_in:
        why = "every request is treated alike: the plugin has no opt-in"
    if why:
        return Finding(Verdict.NOT_APPLICABLE, message=why), None
    return _judged(trial, rule, _shape(trial, rule))


def _judged(trial: Trial, rule: str, shape: Shape | None) -> Judged:
    """Judge a rule by the examples of a stratum, or by all."""
    examples = _examples(trial, rule, shape)
    failing = [example for example in examples if rule in example.rules()]
    acted = sweeps.acted(examples)
    if failing and (unknown := reasons.unknown_rows(trial, rule, failing)):
        return unjudged(unknown, len(examples), acted), None
    # Trouble that was traced to a rule waits for no other.
    traced = rule in trial.contract.anywhere and any(e.shape != shape for e in failing)
    if failing and not traced and (first := _look_first(trial, rule, shape)):
        without = trial.contract.strata.without.get(shape) if shape else None
        if without and without[0] in first:
            return _judged(trial, rule, without[1])
        return unjudged(reasons.waits(trial, first), len(examples), acted), None
    if failing:
        return _failure(trial, rule, examples, failing)
    if why := reasons.against_a_pass(trial, shape, examples):
        return unjudged(why, len(examples), acted), None
    advice = _advised(trial).get(rule) or _shown_in_parts(trial, rule)
    good = passed(len(examples), acted), None
    return _shown(trial, rule, examples, advice) if advice else good


def _examples(trial: Trial, rule: str, shape: Shape | None) -> list[Example]:
    """Return the examples that a rule is judged by."""
    if shape is None:
        return trial.examples()
    strata = trial.contract.strata
    examples = trial.stratum(shape)
    if shape == strata.plain:
        examples = [*examples, *trial.once(_plain_trouble)]
    if rule in trial.contract.anywhere:
        # The stratum makes it likely; such trouble shows anywhere.
        own = (shape, strata.about(rule))
        return examples + [e for e in trial.examples() if e.shape not in own and rule in e.rules()]
    clean = shape == strata.plain and rule != trial.contract.strata.opt_out
    if clean and not any(e.played.faults for e in trial.examples()):
        return examples + trial.stratum(strata.everything)
    return examples


def _plain_trouble(trial: Trial) -> list[Example]:
    """Return what fails as well where the requests of failing histories just join and advance.

    The plain stratum may have missed it by chance; then it is no fault of what else happened.
    """
    plain = trial.contract.strata.plain
    every = trial.examples()
    if any(_is_plain(trial, example) for example in every if example.shape == plain):
        return []
    shapes = dict.fromkeys(example.shape for example in every)
    found = (_plainly(trial, [each for each in every if each.shape == shape]) for shape in shapes)
    return next(filter(None, found), [])


def _plainly(trial: Trial, examples: Iterable[Example]) -> list[Example]:
    """Return one of these that fails as well without what happens in it, as played then."""
    apart = trial.contract.strata.apart
    failing = [
        each
        for each in examples
        if each.played.faults and each.shape not in apart and not sweeps.hung(each)
    ]
    failing.sort(key=lambda example: history.size(example.history))
    again = (_without_events(trial, example) for example in failing[:_PLAYED_PLAINLY])
    return list(islice((example for example in again if _is_plain(trial, example)), 1))


def _without_events(trial: Trial, example: Example) -> Example:
    """Have the requests of a history just join and advance."""
    strata = trial.contract.strata
    return strata.run(trial.bench, strata.plain, edits.unordered(example.history, MAX_REQUESTS))


def _is_plain(trial: Trial, example: Example) -> bool:
    """Tell whether an example of the plain stratum breaks what other rules wait for."""
    return not example.rules().isdisjoint(_first(trial))


def _first(trial: Trial) -> set[str]:
    """Return the rules that every other one waits for where the plain stratum breaks them."""
    strata = trial.contract.strata
    return {strata.owner(strata.plain), *trial.contract.leading}


def _mixed(trial: Trial) -> str:
    """Return the rule that histories with everything at once are about."""
    strata = trial.contract.strata
    return strata.owner(strata.everything)


def _advised(trial: Trial) -> dict[str, Example]:
    """Return what breaks advice where everything happens at once, and in no simpler history.

    One of the things that happen makes the difference, and the rule about that is advice: the rule
    that must hold is not broken.  If any of these examples has another cause, nothing is returned.
    """
    return trial.once(_traced)


def _traced(trial: Trial) -> dict[str, Example]:
    strata, rule = trial.contract.strata, _mixed(trial)
    examples = _examples(trial, rule, strata.plain)
    failing = [example for example in examples if rule in example.rules()]
    if _plainly(trial, failing):
        return {}
    found: dict[str, Example] = {}
    for example in sorted(failing, key=lambda each: history.size(each.history)):
        if example.shape != strata.everything:
            return {}
        smallest = minimise(strata, trial.bench, rule, example, trial.budget)
        owner = _of_advice(trial, rule, smallest)
        if owner is None:
            return {}
        found.setdefault(*owner)
    return found


def _of_parts(trial: Trial) -> dict[Shape, Example]:
    """Return the strata that fail because prompts are computed in part, and what shows it in each.

    The same histories fail where that is all that happens, and it is advice.  So the rule that must
    hold is judged where all of a prompt is computed in one step.
    """
    return {} if trial.survey else trial.once(_failing_in_parts)


def _failing_in_parts(trial: Trial) -> dict[Shape, Example]:
    strata, found = trial.contract.strata, {}
    for shape, (owner, whole) in strata.without.items():
        rule, parts = strata.owner(shape), strata.about(owner)
        assert parts is not None
        failing = [example for example in trial.stratum(shape) if rule in example.rules()]
        again = [strata.run(trial.bench, parts, example.history) for example in failing]
        shown = again and all(owner in example.rules() for example in again)
        if shown and not _plainly(trial, failing) and not _wholly(trial, whole, failing):
            found[shape] = min(again, key=lambda example: history.size(example.history))
    return found


def _wholly(trial: Trial, whole: Shape, failing: Iterable[Example]) -> bool:
    """Tell whether one of these fails as well where all of a prompt is computed in one step."""
    rule, run = trial.contract.strata.owner(whole), trial.contract.strata.run
    histories = (edits.without(example.history, "chunk") for example in failing)
    return any(rule in run(trial.bench, whole, each).rules() for each in histories)


def _shown_in_parts(trial: Trial, rule: str) -> Example | None:
    """Return what breaks the rule about prompts in part in a stratum that is about another one."""
    owners = {shape: owner for shape, (owner, _) in trial.contract.strata.without.items()}
    if rule not in owners.values():
        return None
    return next((shown for shape, shown in _of_parts(trial).items() if owners[shape] == rule), None)


def _of_advice(trial: Trial, rule: str, smallest: Example) -> tuple[str, Example] | None:
    """Return the advice that an example breaks, and the same in the stratum of that, or None.

    All that the example has it needs: it is the smallest.
    """
    strata = trial.contract.strata
    advice = {
        each.id for each in named(trial.contract.generation).rules if each.level is Level.SHOULD
    }
    for shape, about in strata.rule_of.items():
        if about not in advice:
            continue
        if events := events_of(shape):
            needed = any(getattr(step, name) for step in smallest.history for name in events)
        else:
            as_plain = strata.run(trial.bench, strata.plain, smallest.history)
            needed = shape.asynchronous and rule not in as_plain.rules()
        if needed:
            again = strata.run(trial.bench, shape, smallest.history)
            if about in again.rules():
                return about, again
    return None


def roots(trial: Trial) -> list[str]:
    """Return the rules that histories break, but for those that simpler failures explain."""
    examples = [*trial.examples(), *trial.once(_plain_trouble)]
    broken = {rule for example in examples for rule in example.rules()}
    broken.discard(trial.contract.means)  # what nobody but the author knows explains nothing
    return sorted(
        rule
        for rule in broken
        if not (set(_look_first(trial, rule, _shape(trial, rule))) & broken - {rule})
    )


def _look_first(trial: Trial, rule: str, shape: Shape | None) -> list[str]:
    """Return the rules that a failure of this one follows from."""
    contract = trial.contract
    if rule != contract.apart and trial.shares:
        return [contract.apart]
    if first := contract.follows_from(trial, rule):
        return [first]
    if shape in contract.strata.without and shape in _of_parts(trial):
        return [contract.strata.without[shape][0]]
    return _simpler(trial, shape) if shape else []


def _failure(
    trial: Trial, rule: str, examples: Sequence[Example], failing: Sequence[Example]
) -> Judged:
    """Return the failure with the smallest history that shows it, unless it is all advice."""
    if rule == _mixed(trial) and _advised(trial):
        others = [example for example in examples if rule not in example.rules()]
        return passed(len(others), sweeps.acted(others)), None
    strata = trial.contract.strata
    plainly = [each for each in _plainly(trial, failing) if rule in each.rules()]
    smallest = min(plainly or failing, key=lambda example: history.size(example.history))
    if not trial.survey:
        # Rules that others wait for are broken by whatever breaks them.
        any_shape = rule in _first(trial) or smallest.shape in (strata.plain, *strata.apart)

        def needed(example: Example) -> bool:
            return any_shape or not _is_plain(trial, _without_events(trial, example))

        smallest = minimise(strata, trial.bench, rule, smallest, trial.budget, needed=needed)
    return _shown(trial, rule, examples, smallest)


def _shown(trial: Trial, rule: str, examples: Sequence[Example], smallest: Example) -> Judged:
    """Return the failure that an example shows."""
    strata = trial.contract.strata
    shape = smallest.shape if history.shows(smallest.shape, smallest.history) else strata.plain
    trouble = next(trouble for trouble, broken in smallest.troubles() if rule in broken)
    message = f"{trouble.message} ({shape.title})"
    acted = sweeps.acted(examples)
    return failed(message, len(examples), acted), history_case(trial.bench, smallest, trouble)


def _simpler(trial: Trial, shape: Shape) -> list[str]:
    """Return the rules that are broken in strata which another one is made of."""
    strata = trial.contract.strata
    shapes = strata.built_on.get(shape, ())
    examples: list[Example] = []
    if strata.plain in shapes:
        alone = trial.few or trial.survey  # then other strata may not have been played
        examples += _plainly(trial, trial.stratum(shape)) if alone else trial.once(_plain_trouble)
    examples += [example for each in shapes for example in trial.stratum(each)]
    return list(
        dict.fromkeys(
            rule
            for example in examples
            for rule in sorted(example.rules())
            if rule == strata.owner(example.shape) or rule in trial.contract.leading
        )
    )
