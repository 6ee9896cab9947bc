# SPDX-License-Identifier: Apache-2.0
"""One parser in the simulator, rule by rule."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from typing import Any, ClassVar, Self, TypeVar

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance import expectation
from conformance.checking import Simulation
from conformance.findings import Finding
from conformance.interruption import PluginHung
from conformance.parser import formats, player, samples
from conformance.parser.bench import TOOL, Bench, NotMade, PluginExited, guarded
from conformance.parser.formats import Format
from conformance.parser.samples import Drawing, Sample
from conformance.parser.search import Judged, search
from conformance.parser.tokens import Answer
from conformance.settings import Budget, UsageError
from conformance.verdict import RuleResult, Verdict

_Example = TypeVar("_Example")

#: What no parser survives.
_FATAL = (PluginHung, PluginExited)


class Undecided(Exception):
    """Nothing is known of the parser that it could be judged by; the message says the way out."""


@attrs.frozen(kw_only=True)
class Given:
    """What a profile says."""

    section: Mapping[str, Any]
    origin: str | None
    format: Format | None = None  #: the one that it names
    samples: tuple[Sample, ...] = ()

    @classmethod
    def read(cls, section: Mapping[str, Any], origin: str | None, role: str) -> Self:
        """Read the section of a profile.

        Raises:
            UsageError: it is wrong.

        """
        known = {each.name: each for each in formats.KNOWN[role]}
        name = section.get("format")
        if name is not None and name not in known:
            raise UsageError(
                f"profile {origin}: [parser] format {name!r} is none of {', '.join(known)}."
            )
        form = None if name is None else known[name]
        if (serialise := section.get(expectation.SERIALISE)) is not None:
            form = formats.own(serialise.load(), section, role)
        return cls(
            section=section,
            origin=origin,
            format=form,
            samples=samples.read(section, origin),
        )


@attrs.define(kw_only=True)
class Trial(Simulation):
    """One parser, with its bench and what it is tried with."""

    loads: ClassVar[str]
    breaks: ClassVar[Mapping[type[BaseException], tuple[str, str]]] = {}

    cls: type[Any]
    role: str
    given: Given
    budget: Budget
    seed: int
    partner: Trial | None = None  #: of the parser that takes the other part of answers
    _fit: formats.Fit | None = None
    _why: str | None = None
    _sought: bool = False

    def check(self, rule: str) -> RuleResult:
        """Judge one rule."""
        with warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")  # as in production, where a warning ends nothing
            return super().check(rule)

    def attempt(self, rule: str) -> Finding:
        """Judge a rule, or return what it waits for."""
        check = self.checks[rule]
        try:
            waits = None if rule == self.loads else self.broken((self.loads, *self._before(rule)))
            return waits or check.judge(self)
        except Undecided as error:
            return Finding(Verdict.NOT_VERIFIED, message=str(error))

    def _before(self, rule: str) -> tuple[str, ...]:
        """Return the rules that a rule builds on, directly or not, causes first."""
        after = self.checks[rule].after
        every = [each for other in after for each in (*self._before(other), other)]
        return tuple(dict.fromkeys(every))

    def case(self, rule: str, finding: Finding) -> dict[str, Any]:
        """Return a failure as data: what replaying it needs, and the answer that shows it."""
        found = dict(finding.case or {})
        if not self._shows(found.get("program")):
            found.pop("program", None)
        return {
            "kind": "check",
            "rule": rule,
            "seed": self.seed,
            "section": expectation.plain(self.given.section),
            "beside": getattr(self.given.section.get(expectation.SERIALISE), "folder", "."),
            **found,
            "parameters": [],
            "invalid": [],
        }

    def _shows(self, scene: Mapping[str, Any] | None) -> bool:
        """Tell whether a program shows a failure, whose tokens are other than those of a trial.

        No token of it is one that a request may have skipped.
        """
        if not scene or self.given.section.get("skipped_tokens"):
            return False
        given = dict(scene)
        play = getattr(player, f"check_{given.pop('is')}")
        try:
            with redirect_stdout(None):
                fault = guarded("the program", partial(play, self.cls, **given))
        except _FATAL:
            return False
        return isinstance(fault, str)

    def close(self) -> None:
        """Do nothing: nothing was started."""

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        found = self._fit.format if self._fit is not None else None
        fitted = {"format": found.name} if found is not None else {}
        section = expectation.plain(self.given.section)
        return {"profile": {"origin": self.given.origin or "none", **section} | fitted}

    # What it is tried with

    @property
    def tools(self) -> tuple[dict[str, Any], ...]:
        """The tools of requests."""
        named = self.given.section.get("tools")
        if not named:
            return samples.TOOLS
        return tuple(
            tool if "function" in tool else {"type": "function", "function": tool} for tool in named
        )

    @property
    def bench(self) -> Bench:
        """The parser with tokens that it can be made with.

        Raises:
            Undecided: there are none.

        """
        self._seek()
        if self._fit is not None:
            return self._fit.bench
        if self.given.samples:
            return self.plain_bench()
        raise Undecided(self._why or "")

    @property
    def drawing(self) -> Drawing | None:
        """What draws answers, where a format is known."""
        self._seek()
        free = not self.given.section.get("tools")
        return None if self._fit is None else Drawing(self._fit.format, self.tools, free)

    def first(self) -> list[Sample]:
        """Return the answers that are tried before any that is drawn.

        Raises:
            Undecided: none are known, and no format either.

        """
        drawing = self.drawing
        if drawing is None and not self.given.samples:
            raise Undecided(self._why or "")
        return [*self.given.samples, *(drawing.first() if drawing else ())]

    def answers(self) -> SearchStrategy[Sample]:
        """Draw answers: known ones, and others where a format is known."""
        known, drawing = self.first(), self.drawing
        every = [st.sampled_from(known)] if known else []
        every += [drawing.samples()] if drawing is not None else []
        return st.one_of(every)

    def for_sample(self, sample: Sample) -> tuple[Bench, Answer]:
        """Return the bench of a sample, and its tokens."""
        bench = self.bench
        prompt = bench.prompt if sample.prompt is None else sample.prompt
        tools = sample.tools or bench.tools
        # In a model of such pieces no token has the letter that stands for a space.
        pieces = sample.pieces and not any("▁" in text for text in bench.special)
        bench = attrs.evolve(bench, prompt=prompt, tools=tools, pieces=pieces)
        return bench, bench.answer(sample.text)

    def search(
        self,
        judge: Callable[[Sample], Judged],
        drawn: SearchStrategy[Sample] | None = None,
    ) -> Finding:
        """Judge answers: those that are known, and those that are drawn."""
        drawing = self.drawing
        if drawn is None and drawing is not None:
            drawn = drawing.samples()
        return self.sought(self.first(), drawn, judge, lambda sample: sample.text)

    def search_with(
        self,
        other: SearchStrategy[Any],
        judge: Callable[[tuple[Sample, Any]], Judged],
        first: Sequence[Any] = (),
    ) -> Finding:
        """Judge answers with something else that is drawn, and known answers with *first*."""
        known = [(sample, value) for sample in self.first() for value in first]
        drawn = st.tuples(self.answers(), other)
        return self.sought(known, drawn, judge, lambda example: example[0].text)

    def sought(
        self,
        first: Iterable[_Example],
        drawn: SearchStrategy[_Example] | None,
        judge: Callable[[_Example], Judged],
        text: Callable[[_Example], str],
        where: str = "any answer that is known",
    ) -> Finding:
        """Judge examples, of which *text* is the answer; *where* says what the known ones are."""
        return search(
            first,
            drawn,
            judge,
            budget=self.budget,
            seed=self.seed,
            text=text,
            nothing=self.way_out(where),
        )

    def plain_bench(self) -> Bench:
        """Return the parser with tokens that the profile names."""
        section = self.given.section
        return Bench(
            cls=self.cls,
            role=self.role,
            tools=self.tools,
            special=tuple(map(str, section.get("special_tokens", ()))),
            skipped=tuple(map(str, section.get("skipped_tokens", ()))),
            chat=dict(section.get("chat_template_kwargs", {})),
        )

    def _seek(self) -> None:
        """Find the format, once."""
        if self._sought:
            return
        self._sought = True
        named = self.given.format
        if named is None and self.given.samples:
            return  # the profile tells what answers look like
        tried = (named,) if named else formats.KNOWN[self.role]
        found, raised = formats.fits(self.plain_bench(), tried, named=named is not None)
        if found:
            # Rather its own, or one that holds more: several calls, any values, text.
            self._fit = max(found, key=self._worth)
            return
        self._why = self.way_out(f"any of {len(tried)} known formats", raised)

    def _worth(self, fit: formats.Fit) -> tuple[bool, bool, bool, bool]:
        found = fit.format
        return fit.bench.name in found.parsers, found.several, not found.letters, found.content

    def way_out(self, where: str, raised: str | None = None) -> str:
        """Say that the parser found nothing, and what a profile would have to say."""
        example = (
            '{ text = "...", calls = [{ name = "f", arguments = { x = "y" } }] }'
            if self.role == TOOL
            else '{ text = "<r>...</r>...", reasoning = "...", content = "..." }'
        )
        what = "call" if self.role == TOOL else "reasoning"
        makes = f"; making an instance raised {raised}" if raised else ""
        return (
            f"no {what} was found in {where}{makes}; give answers of the model in the profile: "
            f"[parser] samples = [{example}], special_tokens = [...]"
        )

    def made(self) -> Bench:
        """Return the parser with tokens with which an instance can be made, of whatever format.

        Raises:
            NotMade: it raised, with tokens that the profile names or without any need.
            Undecided: it raised with the tokens of each format that is known.

        """
        if why := formats.unfit(self.cls, self.role):
            raise NotMade(why)
        self._seek()
        if self._fit is not None:
            self._fit.bench.instance()
            return self._fit.bench
        bench = self.plain_bench()
        if bench.special or self.given.samples:
            bench.instance()
            return bench
        raised = None
        for each in (*formats.TOOL_FORMATS, *formats.REASONING_FORMATS):
            other = attrs.evolve(bench, special=each.special)
            try:
                other.instance()
            except NotMade as error:
                raised = error
            else:
                return other
        raise Undecided(
            f"making an instance raised {raised} with the tokens of every known format; name "
            'those of the model in the profile: [parser] special_tokens = ["<call>"]'
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what vLLM's parsers log, a traceback for each malformed answer, out of the report."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


class ToolTrial(Trial):
    """A tool parser."""

    loads, survives = "TP-01", "TP-02"
    breaks: ClassVar = {NotMade: (loads, "{}"), **dict.fromkeys(_FATAL, (survives, "{}"))}


class ReasoningTrial(Trial):
    """A reasoning parser."""

    loads, survives = "RP-01", "RP-02"
    breaks: ClassVar = {NotMade: (loads, "{}"), **dict.fromkeys(_FATAL, (survives, "{}"))}
