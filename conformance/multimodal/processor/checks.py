# SPDX-License-Identifier: Apache-2.0
"""All checks of processors, and the trial that makes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.checking import Check
from conformance.findings import Finding, failed, inapplicable, unjudged
from conformance.multimodal.processor import (
    budget,
    embeddings,
    given,
    hashing,
    limits,
    options,
    placeholders,
    processing,
    remains,
    writing,
)
from conformance.multimodal.processor.bench import Bench
from conformance.multimodal.processor.prompts import ANY, CACHED, SEVERAL, Prompt, Shape, alone
from conformance.multimodal.processor.search import Broken, Judge
from conformance.multimodal.processor.trial import Trial
from conformance.plugin.expectation import OracleFailed
from conformance.settings import Budget
from conformance.verdict import Verdict
from conformance.watching.untouched import Untouched

#: Rules about single prompts: what judges them, and which prompts show them best.
JUDGES: Mapping[str, tuple[Judge, Shape]] = {
    "MM-10": (placeholders.processes, ANY),
    "MM-12": (placeholders.within, ANY),
    "MM-13": (placeholders.ordered, SEVERAL),
    "MM-14": (placeholders.text_kept, ANY),
    "MM-15": (placeholders.surplus, ANY),
    "MM-16": (writing.in_text, ANY),
    "MM-17": (writing.as_tokens, ANY),
    "MM-20": (embeddings.one_each, ANY),
    "MM-21": (embeddings.missing, ANY),
    "MM-22": (embeddings.surplus, ANY),
    "MM-23": (embeddings.single, ANY),
    "MM-24": (embeddings.usable, ANY),
    "MM-25": (embeddings.ordered, SEVERAL),
    "MM-26": (embeddings.independent, SEVERAL),
    "MM-27": (embeddings.steady, ANY),
    "MM-28": (embeddings.placed, ANY),
    "MM-30": (processing.steady, ANY),
    "MM-31": (processing.left_alone, ANY),
    "MM-32": (processing.same_data_alone, SEVERAL),
    "MM-33": (placeholders.same_count, SEVERAL),
    "MM-34": (processing.cached, CACHED),
    "MM-36": (processing.in_a_row, ANY),
    "MM-37": (hashing.steady, ANY),
    "MM-81": (placeholders.means, ANY),
}


def _look(rule: str) -> Callable[[Trial], Finding]:
    judge, shape = JUDGES[rule]
    return lambda trial: trial.look(judge, shape)


def _also_alone(rule: str) -> Callable[[Trial], Finding]:
    """Judge every item by itself as well: odd sizes, all forms, and where counts change."""
    return lambda trial: _also(trial, rule, trial.each_alone())


def _also(trial: Trial, rule: str, prompts: Iterable[Prompt]) -> Finding:
    """Judge prompts besides those that are drawn."""
    judge, _ = JUDGES[rule]
    found = _look(rule)(trial)
    if found.verdict is Verdict.PASS:
        for prompt in prompts:
            if trouble := judge(trial.bench, prompt):
                case = {"broken": Broken(prompt, trouble)}
                return failed(trouble.message, found.examples, case=case)
    return found


def _among(rule: str) -> Callable[[Trial], Finding]:
    """Judge items of one prompt that are encoded together, or of several that have one each."""

    def judge(trial: Trial) -> Finding:
        found = _look(rule)(trial)
        if found.verdict is not Verdict.NOT_APPLICABLE:
            return found
        return embeddings.among_prompts(trial.bench, swapped=rule == "MM-25")

    return judge


def _unsaid(trial: Trial) -> Finding | None:
    """Return why the rule does not apply where the profile has no `expected`, or None."""
    if trial.bench.expected is not None:
        return None
    return inapplicable("the profile has no `expected`")


def _means(trial: Trial) -> Finding:
    """Judge numbers of placeholders by what the author says."""
    try:
        # In plain forms alone: a function of a few lines knows no others.
        return _also(trial, "MM-81", [*map(alone, trial.extreme()), *trial.at_steps()])
    except OracleFailed as error:
        return unjudged(str(error))


def _and_as_the_first(
    look: Callable[[Trial], Finding], unlike: Callable[[Bench, Untouched], str | None]
) -> Callable[[Trial], Finding]:
    """Judge prompts, and then items by what comes of them as the first of their process."""

    def judge(trial: Trial) -> Finding:
        found = look(trial)
        if found.verdict is Verdict.PASS and (why := unlike(trial.bench, trial.untouched)):
            return failed(why, found.examples)
        return found

    return judge


def _and_in_the_same_place(look: Callable[[Trial], Finding]) -> Callable[[Trial], Finding]:
    """Judge prompts, and then items whose objects are where others were."""

    def judge(trial: Trial) -> Finding:
        found = look(trial)
        if found.verdict is Verdict.PASS and (why := processing.in_the_same_place(trial.bench)):
            return failed(why, found.examples)
        return found

    return judge


_JUDGES_OF_RULES: Mapping[str, Callable[[Trial], Finding]] = {
    "MM-01": limits.loads,
    "MM-02": embeddings.interface,
    "MM-03": limits.declared,
    **{rule: _look(rule) for rule in JUDGES},
    "MM-11": limits.served,
    "MM-16": writing.written,
    "MM-18": placeholders.empty,
    **{rule: _also_alone(rule) for rule in ("MM-20", "MM-21", "MM-22", "MM-23", "MM-24")},
    **{rule: _among(rule) for rule in ("MM-25", "MM-26")},
    "MM-27": _and_as_the_first(_look("MM-27"), embeddings.unlike_the_first),
    "MM-36": _and_in_the_same_place(
        _and_as_the_first(_also_alone("MM-36"), processing.unlike_the_first)
    ),
    "MM-37": hashing.told_apart,
    "MM-40": hashing.distinct,
    "MM-38": hashing.by_options,
    "MM-04": limits.too_many,
    "MM-05": limits.early,
    "MM-06": limits.unsupported,
    "MM-07": limits.odd,
    "MM-08": budget.dummies,
    "MM-29": budget.never_exceeded,
    "MM-35": budget.agrees,
    "MM-39": budget.encoded,
    "MM-19": limits.fits,
    "MM-81": _means,
    "MM-82": options.harmless,
    "MM-83": options.refused,
    "MM-84": given.seen,
    "MM-85": limits.promised,
    "MM-87": remains.forgotten,
    "MM-88": processing.at_any_rate,
}


_COUNTS = ("MM-21", "MM-22", "MM-23")


#: Rules that others must hold for, nearest to the cause first.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "MM-03": ("MM-01",),
    "MM-04": ("MM-10",),
    "MM-05": ("MM-04",),
    "MM-06": ("MM-04", "MM-05"),
    "MM-07": ("MM-11",),
    "MM-19": ("MM-11",),
    "MM-12": ("MM-10",),
    "MM-13": ("MM-10", "MM-30", "MM-12", "MM-36"),
    "MM-14": ("MM-10", "MM-12", "MM-13"),
    "MM-15": ("MM-10", "MM-14"),
    "MM-16": ("MM-10", "MM-13", "MM-33"),
    "MM-17": ("MM-16", "MM-31", "MM-36"),
    "MM-18": ("MM-14",),
    "MM-20": ("MM-02", "MM-10", "MM-12"),
    "MM-21": ("MM-20", "MM-13", "MM-33", "MM-25"),
    "MM-22": ("MM-20", "MM-13", "MM-33", "MM-25", "MM-21"),
    "MM-23": ("MM-20", "MM-13", "MM-33", "MM-25", "MM-21"),
    "MM-24": ("MM-20",),
    "MM-25": ("MM-20", "MM-27", "MM-36"),
    "MM-26": ("MM-30", "MM-33", "MM-27", "MM-25", *_COUNTS, "MM-24"),
    "MM-27": ("MM-30", "MM-20", "MM-24"),
    "MM-28": ("MM-20", *_COUNTS, "MM-24"),
    "MM-29": (*_COUNTS, "MM-08", "MM-36"),
    "MM-30": ("MM-10",),
    "MM-31": ("MM-10",),
    "MM-32": ("MM-30", "MM-36", "MM-33"),
    "MM-33": ("MM-10", "MM-12", "MM-30", "MM-13", "MM-36"),
    "MM-34": ("MM-30", "MM-36", "MM-13", "MM-33", "MM-40", "MM-37", "MM-38"),
    "MM-35": (*_COUNTS, "MM-08", "MM-36"),
    "MM-36": ("MM-30",),
    "MM-38": ("MM-30", "MM-31", "MM-40"),
    "MM-39": ("MM-02", "MM-20", *_COUNTS, "MM-08"),
    "MM-40": ("MM-30",),
    "MM-81": ("MM-10", "MM-12", "MM-13", "MM-30", "MM-33"),
    "MM-82": ("MM-02", "MM-20", *_COUNTS),
    "MM-83": ("MM-10",),
    "MM-84": ("MM-02", "MM-20", *_COUNTS, "MM-24", "MM-27"),
    "MM-85": ("MM-11",),
    "MM-87": ("MM-11",),
    "MM-88": ("MM-10", "MM-12"),
}


CHECKS: Mapping[str, Check] = {
    rule: Check(rule, judge, _AFTER.get(rule, ()), _unsaid if rule == "MM-81" else None)
    for rule, judge in _JUDGES_OF_RULES.items()
}


def trial(bench: Bench, section: Mapping[str, Any], budget: Budget) -> Trial:
    """Return the trial of a class in the simulator."""
    return Trial(bench, section, budget, Untouched.fork(bench), checks=CHECKS)
