# SPDX-License-Identifier: Apache-2.0
"""One parser in the simulator, rule by rule."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from functools import partial, wraps
from typing import Any, ClassVar, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.checking import Undecided
from conformance.findings import Finding, failed, passed, unjudged
from conformance.parser import hostile, markers, player
from conformance.parser.bench import Bench, NotMade, guarded
from conformance.parser.messages import Message
from conformance.parser.roles import ROLES
from conformance.parser.samples import Sample
from conformance.parser.subject import Tried
from conformance.parser.tokens import Answer
from conformance.plugin import expectation
from conformance.search import ANSWERS, smallest
from conformance.verdict import Cause, RuleResult, Verdict, must_wait
from conformance.watching.interruption import PluginExited, PluginHung

_Example = TypeVar("_Example")

#: Numbers of rules: that a parser breaks which says one thing of a whole answer and another
#: streamed, about answers that end anywhere, and about those that a model writes in no format.
AGREES, TRUNCATED, MALFORMED = 4, 10, 11

#: Where a failure has the message of its answer, which no case needs.
SAYS = "says"

#: What no parser survives.
FATAL = (PluginHung, PluginExited)


@attrs.frozen
class Judged:
    """What one example showed."""

    acted: bool = True  #: whether the parser found anything in it
    wrong: str | None = None
    #: Returns what shows it, where that is known: see :meth:`conformance.parser.bench.Bench.scene`.
    scene: Callable[[], dict[str, Any]] | None = None
    raised: str | None = None  #: what kept it from finding anything, where another rule tells of it
    #: Whether it finds nothing in this way, whole or streamed, and does in the other.
    apart: bool = False


@attrs.define(kw_only=True)
class Trial(Tried):
    """One parser, judged rule by rule."""

    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {}
    partner: Trial | None = None  #: of the parser that takes the other part of answers

    def check(self, rule: str) -> RuleResult:
        """Judge one rule; what vLLM's parsers log of malformed answers stays out of the report."""
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            return super().check(rule)
        finally:
            logging.disable(before)

    def judge(self, rule: str) -> Finding:
        """Judge a rule; a failure in a format that was guessed, in any other that is as likely."""
        finding = super().judge(rule)
        whatever = self._obstacle is not None or rule == self._rule(MALFORMED)
        if finding.verdict is not Verdict.FAIL or whatever or self.fit is None:
            return finding
        mine, says = self.fit.format.name, (finding.case or {}).get(SAYS)
        for trial in self.others:
            assert trial.format is not None  # it was given one
            other = trial.format.name
            if trial.find(rule).verdict is Verdict.PASS and trial.holds(rule, says):
                return unjudged(
                    f"it reads answers of the formats {mine!r} and {other!r}, and this was found "
                    f"in {mine!r} alone: {finding.message}; name the one that its model writes in "
                    f'the profile: [parser] format = "{other}"'
                )
        return finding

    def holds(self, rule: str, says: Message | None) -> bool:
        """Tell whether a rule that has passed does so with an answer, too, that says a message."""
        if says is None:
            return True
        again = attrs.evolve(self, also=says)
        again._findings |= self._findings  # noqa: SLF001 - what it builds on has held
        return again.judge(rule).verdict is Verdict.PASS

    def _all_survived(self) -> Finding:
        """Judge whether all calls end, with answers as well at which a parser may hang."""
        try:
            known = self.first()
        except Undecided:
            return super()._all_survived()
        texts = [sample.text for sample in known]
        # The first two are a call, or a thought, and the same with text.
        count = hostile.survives(self.bench, hostile.nearly(texts[:2][-1]))
        calls = (known[0].says or self.bench.whole(self.bench.answer(texts[0]))).calls
        values = (call.value.values() for call in calls if isinstance(call.value, dict))
        for part in (each for of in values for each in of if isinstance(each, str)):
            count += hostile.survives(self.bench, hostile.escaped(texts[0], part))
        count += hostile.survives_endless(self.bench, texts[0])
        found = super()._all_survived()
        if self._obstacle is not None:
            return found
        for rule in (self._rule(TRUNCATED), self._rule(MALFORMED)):
            if self.find(rule).verdict is Verdict.NOT_VERIFIED:
                self.checks[rule].judge(self)  # whatever it waits for, its calls must end
        return passed(found.examples + count, found.acted + count)

    def waits(self, rule: str) -> Finding | None:
        """Return the finding that a rule must wait for another one, or None."""
        alone = rule == self._rule(ROLES[self.role].together) and self.partner is None
        return None if alone else super().waits(rule)

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return a failure as data: what replaying it needs, and the answer that shows it."""
        found = {key: value for key, value in (finding.case or {}).items() if key != SAYS}
        if not self._shows(found.get("program")):
            found.pop("program", None)
        return {
            "kind": "check",
            "rule": rule,
            "seed": self.wanted.seed,
            "section": expectation.plain(self.wanted.section),
            "beside": getattr(self.wanted.section.get(expectation.SERIALISE), "folder", "."),
            **found,
            "parameters": [],
            "invalid": [],
        }

    def _shows(self, scene: Mapping[str, Any] | None) -> bool:
        """Tell whether a program shows a failure, whose tokens are other than those of a trial.

        No token of it is one that a request may have skipped, or has to have an id of its own.
        """
        own = self.wanted.section.get("skipped_tokens") or self.wanted.model
        if not scene or own:
            return False
        given = dict(scene)
        play = getattr(player, f"check_{given.pop('is')}")
        try:
            with redirect_stdout(None):
                fault = guarded("the program", partial(play, self.cls, **given))
        except FATAL:
            return False
        return isinstance(fault, str)

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        fitted: dict[str, Any] = {}
        notes: list[dict[str, Any]] = []
        if self.fit is not None:
            mine = self.fit.format.name
            others = [trial.format.name for trial in self.others if trial.format is not None]
            fitted = {"format": mine, **({"alike": {"format": [mine, *others]}} if others else {})}
            if self.format is None and not self.known(self.fit):
                texts = "".join((*self.fit.bench.special, *(each.text for each in self.first())))
                own = markers.of_source(self.cls, 1)  # a package may have other parsers as well
                fitted["unread"] = [each for each in own if each not in texts]
                notes = [{"about": "format", "says": _guessed(fitted)}]
        elif not self.given and self.marked:
            fitted = {"likely": {"special_tokens": list(self.marked[: markers.NAMED])}}
        section = expectation.plain(self.wanted.section)
        return {
            "profile": {"origin": self.wanted.origin or "none", **section} | fitted,
            "notes": notes,
        }

    def right(self, message: Message, otherwise: Callable[[], Message] | None = None) -> Judged:
        """Return a pass of an answer, and whether it shows anything.

        Args:
            message: what the parser made of the answer, in the way that is judged.
            otherwise: makes it of the answer in the other way, whole or streamed; the rule that
                compares the two tells where only that has what the parser is there for.

        """
        shows = self.acts(message)
        apart = not shows and otherwise is not None and self.acts(otherwise())
        return Judged(shows, raised=message.error, apart=apart)

    def search(
        self,
        judge: Callable[[Sample, Bench, Answer], Judged],
        drawn: SearchStrategy[Sample] | None = None,
        idle: str | None = None,
        known: Sequence[Sample] | None = None,
    ) -> Finding:
        """Judge answers: those that are *known*, and those that are drawn.

        *judge* takes one with its bench and its tokens.
        *idle* is why nothing is said of a parser that never acted, if it is not the usual reason.
        """
        ready = self._drawn if drawn is None else []
        if drawn is None and self.drawing is not None:
            drawn = self.drawing.samples()
        first = self.first() if known is None else known
        with_tokens = partial(self._with_tokens, judge)
        return self.sought(first, drawn, with_tokens, ready=ready, idle=idle)

    def search_with(
        self,
        other: SearchStrategy[Any],
        judge: Callable[[Sample, Bench, Answer, Any], Judged],
        first: Sequence[Any] = (),
        besides: Iterable[tuple[Sample, Any]] = (),
    ) -> Finding:
        """Judge answers with something else that is drawn, and known answers with *first*."""
        known = [(sample, value) for sample in self.first() for value in first]
        known += besides
        drawn = st.tuples(self.answers(), other)
        with_tokens = partial(self._with_tokens, judge)
        return self.sought(known, drawn, lambda each: with_tokens(*each))

    def _with_tokens(self, judge: Callable[..., Judged], sample: Sample, *more: object) -> Judged:
        return judge(sample, *self.for_sample(sample), *more)

    def sought(
        self,
        first: Iterable[_Example],
        drawn: SearchStrategy[_Example] | None,
        judge: Callable[[_Example], Judged],
        *,
        text: Callable[[Any], str | None] | None = None,
        ready: Sequence[_Example] = (),
        where: str = "any answer that is known",
        idle: str | None = None,
    ) -> Finding:
        """Judge examples, those that are known first; what fails among the drawn is shrunk.

        Args:
            first: known examples.
            drawn: others.
            judge: tells what one shows.
            text: returns the answer of an example that is more than a sample, or begins with one.
            ready: what *drawn* draws; it is drawn again for what shows something, to shrink it.
            where: what the known ones are, for a parser that finds nothing in any.
            idle: what is said of such a parser instead.

        """
        shown: list[Judged] = []

        def look(example: _Example) -> tuple[_Example, Judged] | None:
            shown.append(judge(example))
            return (example, shown[-1]) if shown[-1].wrong is not None else None

        budget, seed = self.wanted.budget, self.wanted.seed
        search = partial(smallest, judge=look, effort=ANSWERS, budget=budget, seed=seed)
        known = list(first)
        count, broken = search(None if ready else drawn, first=[*known, *ready])
        if broken is not None and ready:
            shown.clear()
            again = search(drawn, first=known)
            count, broken = again if again[1] is not None else (again[0], broken)
        acted = sum(each.acted for each in shown)
        if broken is not None:
            example, found = broken
            sample = example[0] if isinstance(example, tuple) else example
            scene = found.scene() if found.scene else {}
            cut = {"deltas": scene["deltas"]} if scene else {}
            told = text(example) if text is not None else getattr(sample, "text", sample)
            says = getattr(sample, "says", None)
            case = {"answer": {"text": told, **cut}, "program": scene, SAYS: says}
            return failed(str(found.wrong), count, max(acted, 1), case=case)
        if acted:
            return passed(count, acted)
        raised = next((each.raised for each in shown if each.raised), None)
        said = f"the parser raised {raised}" if raised else None
        if any(each.apart for each in shown):
            return unjudged(must_wait([self._rule(AGREES)], said), count)
        why = f"nothing was found in any answer: {said}"
        told = ("raises", why) if raised else (idle or "nothing found", idle or self.way_out(where))
        return unjudged(Cause(*told), count)


def _guessed(fitted: Mapping[str, Any]) -> list[str]:
    """Say in which format a parser was judged that no profile names, and what it had nothing of."""
    told = f"judged in answers of the format {fitted['format']!r}, which no profile names"
    alike = [repr(each) for each in fitted.get("alike", {}).get("format", ())[1:]]
    said = [f"{told}; {', '.join(alike)} would do as well" if alike else told]
    if unread := [repr(each) for each in fitted["unread"]]:
        more = ", ..." if unread[markers.NAMED :] else ""
        told = f"of the markers in its source no answer had {', '.join(unread[: markers.NAMED])}"
        said.append(f"{told}{more}: if the model writes them, name its format in the profile")
    return said


class ToolTrial(Trial):
    """A tool parser."""

    loads, survives = "TP-01", "TP-02"
    breaks: ClassVar = {NotMade: (loads, "{}"), **dict.fromkeys(FATAL, (survives, "{}"))}


class ReasoningTrial(Trial):
    """A reasoning parser."""

    loads, survives = "RP-01", "RP-02"
    breaks: ClassVar = {NotMade: (loads, "{}"), **dict.fromkeys(FATAL, (survives, "{}"))}


def of_each_answer(
    judge: Callable[[Trial, Sample, Bench, Answer], Judged],
) -> Callable[[Trial], Finding]:
    """Make a check of a function that judges one answer, with its bench and its tokens."""

    @wraps(judge)
    def check(trial: Trial) -> Finding:
        return trial.search(partial(judge, trial))

    return check
