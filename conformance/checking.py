# SPDX-License-Identifier: Apache-2.0
"""Judging the rules of one plugin in the simulator: each once, and after those it builds on.

A check is a function that judges a rule; :func:`checks` writes beside it which rule that is, and
which other rules must hold first.  A suite collects the checks of its modules and hands them to
its trial, a :class:`Judging`; so no trial imports a check, and checks may import their trial.
"""

from __future__ import annotations

import abc
import time
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, ClassVar, Self, TypeVar

import attrs

from conformance.findings import (
    LEAST_ACTED,
    Finding,
    obstructed,
    passed,
    simulated,
    unjudged,
    waiting,
)
from conformance.verdict import Cause, RuleResult, Verdict

_Answer = TypeVar("_Answer")
_Judge = TypeVar("_Judge", bound="Callable[[Any], Finding]")

#: The attribute of a function that holds its checks.
_NOTED = "_conformance_checks"


@attrs.frozen
class Check:
    """How a rule is judged."""

    rule: str
    judge: Callable[[Any], Finding]  #: takes the trial
    after: tuple[str, ...] = ()  #: rules that must hold first, nearest to the cause first
    #: Given the trial, returns why the rule does not apply, or None; asked before other rules.
    beside: Callable[[Any], Finding | None] | None = None


def checks(
    rule: str,
    *,
    after: tuple[str, ...] = (),
    beside: Callable[[Any], Finding | None] | None = None,
) -> Callable[[_Judge], _Judge]:
    """Mark a function as the check of a rule; one function may be the check of several."""

    def mark(judge: _Judge) -> _Judge:
        noted = getattr(judge, _NOTED, ())
        setattr(judge, _NOTED, (*noted, Check(rule, judge, after, beside)))
        return judge

    return mark


def collected(*modules: ModuleType) -> dict[str, Check]:
    """Return the checks that modules define, by rule.

    Raises:
        ValueError: two functions are the check of one rule.

    """
    found: dict[str, Check] = {}
    for module in modules:
        for value in vars(module).values():
            for check in getattr(value, _NOTED, ()):
                if found.setdefault(check.rule, check) is not check:
                    raise ValueError(f"{check.rule} has two checks, one of them in {module}")
    return found


@attrs.define
class Asked:
    """Something of which each question is asked once."""

    _answers: dict[Callable[[Any], Any], Any] = attrs.field(init=False, factory=dict)

    def once(self, question: Callable[[Self], _Answer]) -> _Answer:
        """Return what a function finds out about this; it is called once."""
        if question not in self._answers:
            self._answers[question] = question(self)
        answer: _Answer = self._answers[question]
        return answer


@attrs.define(kw_only=True)
class Judging(Asked, abc.ABC):
    """The trial of one plugin: a rule is judged when it is first asked for."""

    checks: Mapping[str, Check]
    budget: str = "standard"
    _findings: dict[str, Finding] = attrs.field(init=False, factory=dict)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        started = time.perf_counter()
        finding = self.find(rule)
        case = self.case(rule, finding) if finding.verdict is Verdict.FAIL else None
        return simulated(rule, finding, time.perf_counter() - started, case)

    def find(self, rule: str) -> Finding:
        """Judge one rule, once."""
        if rule not in self._findings:
            found = self._beside(rule) or self.judge(rule)
            self._findings[rule] = found.enough(LEAST_ACTED[self.budget])
        return self._findings[rule]

    def _beside(self, rule: str) -> Finding | None:
        check = self.checks.get(rule)
        return check.beside(self) if check is not None and check.beside is not None else None

    def broken(self, rules: tuple[str, ...]) -> Finding | None:
        """Return the finding that a rule must wait for the first of these that fails, or None."""
        for rule in rules:
            if (found := self.find(rule)).verdict is Verdict.FAIL:
                return waiting(rule, found.message)
        return None

    @abc.abstractmethod
    def judge(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""

    @abc.abstractmethod
    def case(self, rule: str, finding: Finding) -> dict[str, Any] | None:
        """Return the counterexample of a failure as data."""


class Undecided(Exception):
    """Nothing is known of a plugin that a rule could be judged by; the message says the way out."""


@attrs.define(kw_only=True)
class Simulation(Judging):
    """A trial that some errors of the plugin end: no rule can be judged after them."""

    #: The rule that a plugin breaks that cannot be loaded, or made.
    loads: ClassVar[str]

    #: The rule that a plugin breaks whose calls hang or end their process.
    survives: ClassVar[str]
    #: Those errors: for each the rule that is broken, and how that is told.
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]]

    #: A rule that no other can be judged before, and how it is broken.
    _obstacle: tuple[str, str] | None = attrs.field(init=False, default=None)

    def judge(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        if self._obstacle is None:
            try:
                return self._all_survived() if rule == self.survives else self.attempt(rule)
            except tuple(self.breaks) as error:
                owner, how = next(
                    told for kind, told in self.breaks.items() if isinstance(error, kind)
                )
                self._obstacle = owner, how.format(error)
        found = self._obstructed(rule)
        assert found is not None
        return found

    def attempt(self, rule: str) -> Finding:
        """Judge a rule where nothing has ended the trial, or return what it waits for.

        Raises:
            BaseException: one of :attr:`breaks`.

        """
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # as in production, where a warning ends nothing
                return self.waits(rule) or self.checks[rule].judge(self)
        except Undecided as error:
            return unjudged(Cause.of(error, str(error)))

    def waits(self, rule: str) -> Finding | None:
        """Return the finding that a rule must wait for another one, or None."""
        return None if rule == self.loads else self.broken((self.loads, *self.before(rule)))

    def before(self, rule: str) -> tuple[str, ...]:
        """Return the rules that a rule builds on, directly or not, causes first."""
        after = self.checks[rule].after
        every = [each for other in after for each in (*self.before(other), other)]
        return tuple(dict.fromkeys(every))

    def close(self) -> None:
        """Do nothing: nothing was started."""

    def _all_survived(self) -> Finding:
        """Judge whether all that the other rules do with the plugin ends."""
        count = sum(self.find(rule).examples for rule in self.checks)
        return self._obstructed(self.survives) or passed(count, count)

    def _obstructed(self, rule: str) -> Finding | None:
        """Return what a rule is where nothing can be judged, or None where it can."""
        return None if self._obstacle is None else obstructed(rule, *self._obstacle)
