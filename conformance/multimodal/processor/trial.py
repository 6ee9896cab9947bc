# SPDX-License-Identifier: Apache-2.0
"""One processor in the simulator, rule by rule."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs

from conformance.findings import Finding, failed, obstructed, passed, simulated, waiting
from conformance.interruption import PluginHung
from conformance.multimodal.processor import (
    budget,
    cases,
    embeddings,
    hashing,
    limits,
    placeholders,
    processing,
)
from conformance.multimodal.processor.bench import Bench, CannotBuild
from conformance.multimodal.processor.checkpoint import remove
from conformance.multimodal.processor.host import Exited
from conformance.multimodal.processor.prompts import ANY, CACHED, SEVERAL, alone
from conformance.multimodal.processor.search import Broken, search
from conformance.multimodal.processor.stock import Item
from conformance.rules import Evidence
from conformance.verdict import RuleResult, Verdict, must_wait, waits_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.multimodal.processor.prompts import Prompt, Shape
    from conformance.multimodal.processor.search import Trouble
    from conformance.settings import Budget

    Judge = Callable[[Bench, Prompt], Trouble | None]

LOADS, SURVIVES, SERVED, MODEL = "MM-01", "MM-09", "MM-11", "MM-02"

#: Items of unusual sizes, and large ones.
ODD: Mapping[str, tuple[str, ...]] = {
    "image": ("1x1", "1x150", "400x2", "29x27", "13x15"),
    "audio": ("0.0001s", "2.5s"),
    "video": ("28x28x1", "29x31x3"),
}
LARGE: Mapping[str, tuple[str, ...]] = {
    "image": ("700x700", "1400x28", "28x1400", "333x500", "1024x60"),
    "audio": ("31s",),
    "video": ("84x84x12", "28x28x40"),
}

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
}


def _look(rule: str) -> Callable[[Trial], Finding]:
    judge, shape = JUDGES[rule]
    return lambda trial: trial.look(judge, shape)


def _also_odd(rule: str) -> Callable[[Trial], Finding]:
    """Judge items of unusual sizes as well, each alone."""
    judge, shape = JUDGES[rule]

    def check(trial: Trial) -> Finding:
        found = trial.look(judge, shape)
        if found.verdict is Verdict.PASS:
            for item in trial.odd():
                if trouble := judge(trial.bench, alone(item)):
                    case = {"broken": Broken(alone(item), trouble)}
                    return failed(trouble.message, found.examples, case=case)
        return found

    return check


def _survives(trial: Trial) -> Finding:
    """All that the other rules do with the plugin ends."""
    count = sum(trial.find(rule).examples for rule in CHECKS if rule != SURVIVES)
    return trial.obstacle(SURVIVES) or passed(count, count)


CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
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
    "MM-09": _survives,
}

_COUNTS = ("MM-21", "MM-22", "MM-23")

#: Rules that others must hold for, nearest to the cause first.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "MM-03": ("MM-01",),
    "MM-04": ("MM-10",),
    "MM-05": ("MM-04",),
    "MM-06": ("MM-04", "MM-05"),
    "MM-07": ("MM-11",),
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
}

#: Rules that need no item.
_WITHOUT_ITEMS = frozenset((LOADS, MODEL, "MM-03", SERVED, "MM-06", SURVIVES))


#: Rules about rows of embeddings.  Where nothing can be encoded they find no fault in any prompt,
#: so each waits for whatever one that it is built on waits for.
_WITH_ROWS = frozenset((*(f"MM-{number}" for number in range(20, 29)), "MM-39"))

#: Rules about items that stand in a text.
_WITH_TEXT = frozenset(("MM-13", "MM-14", "MM-15", "MM-16", "MM-17", "MM-18", "MM-28"))


@attrs.define
class Trial:
    """One class; checks are made when a rule first asks for them."""

    bench: Bench
    section: Mapping[str, Any]
    budget: Budget
    _findings: dict[str, Finding] = attrs.field(factory=dict)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = None
    _ready: bool = False

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        finding = self.find(rule)
        case = cases.written(self.bench, rule, finding) if finding.verdict is Verdict.FAIL else None
        return simulated(rule, finding, time.perf_counter() - started, case)

    def find(self, rule: str) -> Finding:
        """Judge one rule, once."""
        if rule not in self._findings:
            self._findings[rule] = self._find(rule)
        return self._findings[rule]

    def look(self, judge: Judge, shape: Shape = ANY) -> Finding:
        """Judge prompts of a shape."""
        return search(self.bench, self.budget, judge, shape)

    def odd_items(self) -> list[Item]:
        """Return items of unusual sizes, of the modalities that are served."""
        return self._known(ODD)

    def odd(self) -> list[Item]:
        """Return those items of unusual sizes that are taken."""
        return [item for item in self.odd_items() if self.bench.alone(item).good]

    def large(self) -> list[Item]:
        """Return large items."""
        return self._known(LARGE)

    def _known(self, texts: Mapping[str, tuple[str, ...]]) -> list[Item]:
        return [
            Item(modality, text)
            for modality in self.bench.stock.items
            for text in texts.get(modality, ())
        ]

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        return {"profile": self.bench.document()} if self._ready else {}

    def close(self) -> None:
        """Remove what was written for this trial."""
        remove(self.bench.host.folder)

    def _find(self, rule: str) -> Finding:
        if self._obstacle is None:
            try:
                if not self._ready:
                    self.bench.prepare(self.section)
                    self._ready = True
                if not self.bench.broken:
                    return self._decide(rule)
                self._obstacle = (LOADS, self.bench.broken)
            except CannotBuild as error:
                self._obstacle = (LOADS, str(error))
            except (PluginHung, Exited) as error:
                self._obstacle = (SURVIVES, str(error))
        found = self.obstacle(rule)
        assert found is not None
        return found

    def _decide(self, rule: str) -> Finding:
        if rule in _WITH_TEXT and self.bench.host.encoder_decoder:
            why = "items of an encoder-decoder model are not in the prompt with the text"
            return Finding(Verdict.NOT_APPLICABLE, message=why)
        for other in _AFTER.get(rule, ()):
            found = self.find(other)
            if found.verdict is Verdict.FAIL:
                return waiting(other, found.message)
            if rule in _WITH_ROWS and waits_for(found.message or ""):
                return Finding(Verdict.NOT_VERIFIED, message=found.message)
        if rule not in _WITHOUT_ITEMS and not self.bench.stock.items:
            return waiting(SERVED, self.find(SERVED).message)
        return CHECKS[rule](self)

    def obstacle(self, rule: str) -> Finding | None:
        """Return what a rule is where nothing can be processed, or None where it can."""
        return None if self._obstacle is None else obstructed(rule, *self._obstacle)


@attrs.frozen
class Unopened:
    """A class of which nothing can be tried."""

    why: str
    refused: bool = False  #: whether vLLM cannot even be configured with it

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        if self.refused and rule == LOADS:
            return RuleResult(rule, Verdict.FAIL, Evidence.SIMULATOR, 1, 1, message=self.why)
        why = must_wait([LOADS], self.why) if self.refused else self.why
        return RuleResult(rule, Verdict.NOT_VERIFIED, Evidence.SIMULATOR, message=why)
