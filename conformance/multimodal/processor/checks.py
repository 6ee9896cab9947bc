# SPDX-License-Identifier: Apache-2.0
"""All checks of processors, and the trial that makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.checking import Check
from conformance.expectation import OracleFailed
from conformance.findings import Finding, failed
from conformance.multimodal.processor import (
    budget,
    embeddings,
    hashing,
    limits,
    placeholders,
    processing,
)
from conformance.multimodal.processor.prompts import ANY, CACHED, SEVERAL, alone
from conformance.multimodal.processor.search import Broken
from conformance.multimodal.processor.trial import Trial
from conformance.verdict import Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.multimodal.processor.bench import Bench
    from conformance.multimodal.processor.prompts import Shape
    from conformance.multimodal.processor.trial import Judge
    from conformance.settings import Budget

#: Rules about single prompts: what judges them, and which prompts show them best.
JUDGES: Mapping[str, tuple[Judge, Shape]] = {
    "MM-10": (placeholders.processes, ANY),
    "MM-12": (placeholders.within, ANY),
    "MM-13": (placeholders.ordered, SEVERAL),
    "MM-14": (placeholders.text_kept, ANY),
    "MM-15": (placeholders.surplus, ANY),
    "MM-16": (placeholders.in_text, ANY),
    "MM-17": (placeholders.as_tokens, ANY),
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
    "MM-31": (processing.unchanged, ANY),
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


def _also_odd(rule: str) -> Callable[[Trial], Finding]:
    """Judge items of unusual sizes as well, and where counts change, each alone."""
    judge, shape = JUDGES[rule]

    def check(trial: Trial) -> Finding:
        found = trial.look(judge, shape)
        if found.verdict is Verdict.PASS:
            for item in (*trial.odd(), *trial.at_steps()):
                if trouble := judge(trial.bench, alone(item)):
                    case = {"broken": Broken(alone(item), trouble)}
                    return failed(trouble.message, found.examples, case=case)
        return found

    return check


def _means(trial: Trial) -> Finding:
    """Judge numbers of placeholders by what the author says."""
    if trial.bench.expected is None:
        return Finding(Verdict.NOT_APPLICABLE, message="the profile has no `expected`")
    try:
        return _also_odd("MM-81")(trial)
    except OracleFailed as error:
        return Finding(Verdict.NOT_VERIFIED, message=str(error))


def _in_a_row(trial: Trial) -> Finding:
    """Judge prompts after others, and items that have only their size in common."""
    found = trial.look(*JUDGES["MM-36"])
    if found.verdict is Verdict.PASS and (why := processing.others_data(trial.bench)):
        return failed(why, found.examples)
    return found


_JUDGES_OF_RULES: Mapping[str, Callable[[Trial], Finding]] = {
    "MM-01": limits.loads,
    "MM-02": embeddings.interface,
    "MM-03": limits.declared,
    **{rule: _look(rule) for rule in JUDGES},
    "MM-11": limits.served,
    "MM-16": placeholders.written,
    "MM-18": placeholders.empty,
    "MM-21": _also_odd("MM-21"),
    "MM-22": _also_odd("MM-22"),
    "MM-23": _also_odd("MM-23"),
    "MM-24": _also_odd("MM-24"),
    "MM-36": _in_a_row,
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
    "MM-13": ("MM-10", "MM-30", "MM-12"),
    "MM-14": ("MM-10", "MM-12", "MM-13"),
    "MM-15": ("MM-10", "MM-14"),
    "MM-16": ("MM-10", "MM-13", "MM-33"),
    "MM-17": ("MM-16", "MM-31"),
    "MM-18": ("MM-14",),
    "MM-20": ("MM-02", "MM-10", "MM-12"),
    "MM-21": ("MM-20", "MM-13", "MM-33", "MM-25"),
    "MM-22": ("MM-20", "MM-13", "MM-33", "MM-25", "MM-21"),
    "MM-23": ("MM-20", "MM-13", "MM-33", "MM-25", "MM-21"),
    "MM-24": ("MM-20",),
    "MM-25": ("MM-20", "MM-27"),
    "MM-26": ("MM-30", "MM-33", "MM-27", "MM-25", *_COUNTS, "MM-24"),
    "MM-27": ("MM-30", "MM-20", "MM-24"),
    "MM-28": ("MM-20", *_COUNTS, "MM-24"),
    "MM-29": (*_COUNTS, "MM-08"),
    "MM-30": ("MM-10",),
    "MM-31": ("MM-10",),
    "MM-32": ("MM-30", "MM-36", "MM-33"),
    "MM-33": ("MM-10", "MM-12", "MM-30", "MM-13"),
    "MM-34": ("MM-30", "MM-36", "MM-13", "MM-33", "MM-40", "MM-37", "MM-38"),
    "MM-35": (*_COUNTS, "MM-08"),
    "MM-36": ("MM-30",),
    "MM-38": ("MM-30", "MM-31", "MM-40"),
    "MM-39": ("MM-02", "MM-20", *_COUNTS, "MM-08"),
    "MM-40": ("MM-30",),
    "MM-81": ("MM-10", "MM-12", "MM-13", "MM-30", "MM-33"),
}


CHECKS: Mapping[str, Check] = {
    rule: Check(rule, judge, _AFTER.get(rule, ())) for rule, judge in _JUDGES_OF_RULES.items()
}


def trial(bench: Bench, section: Mapping[str, Any], budget: Budget) -> Trial:
    """Return the trial of a class in the simulator."""
    return Trial(bench, section, budget, checks=CHECKS)
