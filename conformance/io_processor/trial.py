# SPDX-License-Identifier: Apache-2.0
"""One plugin in the simulator, rule by rule."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from conformance.findings import Finding, obstructed, simulated, waiting
from conformance.interruption import PluginHung
from conformance.io_processor import (
    admission,
    calling,
    demonstrations,
    interruptions,
    isolation,
    loop,
    memory,
    outcomes,
    parameters,
    stock,
    threads,
)
from conformance.io_processor.bench import ConstructorRaised
from conformance.io_processor.host import REQUEST
from conformance.io_processor.traffic import PluginExited
from conformance.io_processor.watched import AFTER_OUTPUTS
from conformance.verdict import RuleResult, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from conformance.io_processor.bench import Bench
    from conformance.io_processor.traffic import Shape
    from conformance.settings import Budget
    from conformance.untouched import Untouched

LOADS, CONSTRUCTOR, SURVIVES, ANSWERS, STEADY, SYNC = (
    "IO-01", "IO-02", "IO-37", "IO-07", "IO-24", "IO-18",
)  # fmt: skip


def _shape(wanted: Shape) -> Callable[[Trial], Finding]:
    return lambda trial: isolation.shape(trial, wanted)


def _survives(trial: Trial) -> Finding:
    """Everything else has been through the plugin by now."""
    return admission.unanswered(trial) or Finding(Verdict.PASS, trial.asked, trial.asked)


CHECKS: Mapping[str, Callable[[Trial], Finding]] = {
    "IO-01": calling.loads,
    "IO-02": calling.constructor,
    "IO-03": calling.takes_renderer,
    "IO-05": calling.signatures,
    "IO-06": calling.awaitable,
    "IO-07": lambda trial: trial.answered(),
    "IO-08": admission.refuses,
    "IO-09": admission.hostile,
    "IO-10": admission.early,
    "IO-11": admission.pure,
    "IO-12": admission.forms,
    "IO-13": parameters.prompts,
    "IO-14": parameters.returned,
    "IO-15": parameters.kept,
    "IO-16": parameters.fresh,
    "IO-17": _shape(isolation.ORDER),
    "IO-18": outcomes.same_awaited,
    "IO-19": outcomes.used,
    "IO-20": interruptions.errors,
    "IO-21": outcomes.left,
    "IO-22": outcomes.serialisable,
    "IO-23": outcomes.response,
    "IO-24": outcomes.steady,
    "IO-25": outcomes.same_offline,
    "IO-26": _shape(isolation.SEQUENCE),
    "IO-27": _shape(isolation.INTERLEAVED),
    "IO-28": _shape(isolation.SAME_IDS),
    "IO-29": isolation.without_ids,
    "IO-30": _shape(isolation.TROUBLED),
    "IO-31": threads.threads,
    "IO-32": loop.waits,
    "IO-33": loop.works,
    "IO-34": interruptions.cancelled,
    "IO-35": memory.forgets,
    "IO-36": memory.abandons,
    "IO-37": _survives,
}

#: Rules that need no request.
_WITHOUT_DATA = frozenset(("IO-01", "IO-02", "IO-03", "IO-05", "IO-06", "IO-14", "IO-15", "IO-16"))

#: What must be right before anything else can be judged, nearest to the cause first.
_BASIC: tuple[tuple[str, Callable[[Bench], str | None]], ...] = (
    ("IO-05", calling.signature_trouble),
    ("IO-14", parameters.params_trouble),
    ("IO-13", parameters.prompts_trouble),
    ("IO-22", outcomes.response_trouble),
    ("IO-23", outcomes.wrapping_trouble),
    ("IO-31", threads.other_thread_trouble),
)

#: Rules that are judged where valid requests are answered by the plain hooks at least.
_ADMISSION = frozenset(("IO-08", "IO-09", "IO-10", "IO-32", "IO-33"))

#: Rules that another one must hold for.
_AFTER: Mapping[str, tuple[str, ...]] = {
    "IO-27": ("IO-26",),
    "IO-28": ("IO-26", "IO-27"),
    "IO-30": ("IO-26", "IO-27"),
    "IO-29": ("IO-26",),
    "IO-31": ("IO-26",),
    "IO-17": ("IO-06", "IO-18"),
    "IO-18": ("IO-06",),
    "IO-20": ("IO-06", "IO-18"),
    "IO-34": ("IO-06", "IO-18"),
}


@attrs.define
class Trial:
    """One plugin and its bench; checks are made when a rule first asks for them."""

    bench: Bench
    section: Mapping[str, Any]
    origin: str | None
    budget: Budget
    #: A process in which nothing has been done with the plugin, for programs of failures.
    untouched: Untouched | None = None
    asked: int = 0  #: rules that have been asked for
    _findings: dict[str, Finding] = attrs.field(factory=dict)
    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = None
    #: What stands in the way where a call did not return, and may do so on a model's own outputs.
    _guessed: Finding | None = None
    _answered: Finding | None = None
    _ready: bool = False
    #: The first of the basic rules that does not hold; empty where all do.
    _trouble: str | None = None

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        self.asked += 1
        finding = self.find(rule)
        case = None
        if finding.verdict is Verdict.FAIL:
            case = demonstrations.shown(self, rule, finding)
        return simulated(rule, finding, time.perf_counter() - started, case)

    def find(self, rule: str) -> Finding:
        """Judge one rule, once."""
        if rule not in self._findings:
            self._findings[rule] = self._find(rule)
        return self._findings[rule]

    def answered(self) -> Finding:
        """Judge once whether valid requests are answered, whatever else is broken."""
        if self._answered is None:
            self._answered = admission.answers(self)
        return self._answered

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        host = f"{self.bench.online.name}, without an engine"
        profile = {"profile": self.bench.stock.document()} if self._ready else {}
        return {"host_simulator": host, **profile}

    def close(self) -> None:
        """End the trial's second process."""
        if self.untouched is not None:
            self.untouched.close()

    def _find(self, rule: str) -> Finding:
        cls = self.bench.cls
        if missing := ", ".join(sorted(getattr(cls, "__abstractmethods__", ()))):
            self._obstacle = (LOADS, f"{cls.__name__} does not define {missing}")
        if self._obstacle is None and self._guessed is None:
            try:
                return self._decide(rule)
            except ConstructorRaised as error:
                self._obstacle = (CONSTRUCTOR, f"making an instance raised {error}")
                if rule == CONSTRUCTOR:
                    return CHECKS[rule](self)
            except PluginHung as error:
                if self._may_return(rule, str(error)):
                    self._guessed = admission.made_up(str(error))
                else:
                    self._obstacle = (SURVIVES, str(error))
            except PluginExited as error:
                self._obstacle = (SURVIVES, str(error))
        if self._obstacle is not None:
            return obstructed(rule, *self._obstacle)
        assert self._guessed is not None
        return self._guessed if rule == ANSWERS else waiting(ANSWERS, admission.UNKNOWN)

    def _may_return(self, rule: str, hung: str) -> bool:
        """Tell whether a call that did not return might, were its outputs not made up."""
        if not hung.startswith(AFTER_OUTPUTS):
            return False
        if rule not in _ADMISSION and self._answered and self._answered.verdict is Verdict.PASS:
            return False  # it did, with the same outputs
        plugin = self.bench.make()
        with suppress(Exception):
            parameters.asks(plugin, self.bench)()
        return plugin.guessing

    def _decide(self, rule: str) -> Finding:
        if rule in _WITHOUT_DATA:
            return CHECKS[rule](self)
        self.prepare()
        if not self.bench.stock.valid:
            return Finding(Verdict.NOT_VERIFIED, message=self._unknown_data())
        if why := self._waits(rule):
            return why
        return CHECKS[rule](self)

    def prepare(self) -> None:
        """Find out what the plugin is tried with."""
        if not self._ready:
            self.bench.stock = stock.find(self.bench, self.section, origin=self.origin)
            self._ready = True
            self.bench.hidden = self.bench.unsteady()

    def _waits(self, rule: str) -> Finding | None:
        """Return that a rule must wait for another one, or None."""
        before = list(_AFTER.get(rule, ()))
        if rule not in _ADMISSION and rule != SURVIVES:
            owner = self._first_trouble()
            if owner == rule:
                before.clear()  # others wait for it
            elif owner is not None:
                before.insert(0, owner)
        for other in before:
            found = self.find(other)
            if found.verdict is Verdict.FAIL:
                return waiting(other)
            if other == ANSWERS and found.verdict is Verdict.NOT_VERIFIED:
                return waiting(other, admission.UNKNOWN)
        if rule in _COMPARING and () in self.bench.hidden:
            return waiting(STEADY)
        return None

    def _first_trouble(self) -> str | None:
        """Return the rule that must hold before others can be judged, and does not."""
        if self._trouble is None:
            self._trouble = next(
                (rule for rule, trouble in _BASIC if self._has(rule) and trouble(self.bench)), ""
            )
            if not self._trouble and self.answered().verdict is not Verdict.PASS:
                self._trouble = ANSWERS
        return self._trouble or None

    def _has(self, rule: str) -> bool:
        """Tell whether a rule is one of this generation."""
        return rule != "IO-23" or self.bench.generation == REQUEST

    def _unknown_data(self) -> str:
        keys = ", ".join(self.bench.stock.keys)
        saw = f"it reads {keys}" if keys else "nothing that was tried was answered"
        return f"nobody knows what the plugin takes ({saw}); give a profile such as\n" + (
            stock.starter(self.bench.stock.keys)
        )


#: Rules that compare answers.
_COMPARING = frozenset(
    ("IO-17", "IO-18", "IO-25", "IO-26", "IO-27", "IO-28", "IO-29", "IO-30", "IO-31")
)
