# SPDX-License-Identifier: Apache-2.0
"""What one parser is tried with: a format that it reads, tokens, and answers."""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn, Self

import attrs
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from conformance.checking import Simulation, Undecided
from conformance.inputs.oddities import CASED
from conformance.parser import formats, markers
from conformance.parser.bench import Bench, NotMade
from conformance.parser.formats import Format
from conformance.parser.messages import Message
from conformance.parser.roles import REASONING, ROLES, TOOL
from conformance.parser.samples import Drawing, Sample, holding
from conformance.parser.tokens import Answer
from conformance.parser.wanted import Wanted
from conformance.plugin import vocabulary
from conformance.search import ANSWERS, examples


@attrs.define(kw_only=True)
class Tried(Simulation):
    """One parser, and what it is tried with."""

    cls: type[Any]
    wanted: Wanted
    also: Message | None = None  #: what one of the first answers says
    given: tuple[Sample, ...] = attrs.field(init=False)  #: samples of the profile
    format: Format | None = attrs.field(init=False)  #: the one that the profile names

    def __attrs_post_init__(self) -> None:
        """Read the profile.

        Raises:
            UsageError: it is wrong.

        """
        self.budget = self.wanted.budget
        self.given, self.format = self.wanted.samples(), self.wanted.format()

    @property
    def role(self) -> str:
        """What the parser is for."""
        return self.wanted.role

    def _rule(self, number: int) -> str:
        return ROLES[self.role].rule(number)

    @property
    def fit(self) -> formats.Fit | None:
        """The format that the parser reads, where one is known."""
        return self._sought[0]

    @cached_property
    def others(self) -> tuple[Self, ...]:
        """Trials with the other formats that fit equally well, if the profile names none."""
        mine = self.fit
        if mine is None or self.format is not None:
            return ()
        found, _ = formats.fits(self.wanted.bench(self.cls), formats.KNOWN[self.role], named=False)
        fits = [fit for fit in found if self._worth(fit) == self._worth(mine)]
        names = [fit.format.name for fit in fits if fit.format.name != mine.format.name]
        sections = [{**self.wanted.section, "format": name} for name in names]
        wanted = [attrs.evolve(self.wanted, section=section) for section in sections]
        return tuple(attrs.evolve(self, wanted=each) for each in wanted)

    @property
    def bench(self) -> Bench:
        """The parser with tokens that it can be made with.

        Raises:
            Undecided: there are none.

        """
        if self.fit is not None:
            return self.fit.bench
        if not self.given:
            self._unknown()
        return self.wanted.bench(self.cls)

    def _unknown(self) -> NoReturn:
        """Tell that no format is known: it is one cause, wherever it is met."""
        raise Undecided(self._sought[1])

    @cached_property
    def drawing(self) -> Drawing | None:
        """What draws answers, where a format is known."""
        free = not self.wanted.section.get("tools")
        return None if self.fit is None else Drawing(self.fit.format, self.wanted.tools, free)

    @cached_property
    def _drawn(self) -> list[Sample]:
        """Draw the answers that most rules judge: drawing takes longer than judging."""
        if self.drawing is None:
            return []
        wanted = self.wanted
        return examples(self.drawing.samples(), ANSWERS.most(wanted.budget), wanted.seed)

    def first(self) -> list[Sample]:
        """Return the answers that are tried before any that is drawn.

        Raises:
            Undecided: none are known, and no format either.

        """
        drawing = self.drawing
        if drawing is None and not self.given:
            self._unknown()
        also = [self.also] if self.also is not None else []
        found = [
            *self.given,
            *([*drawing.saying(*also), *drawing.first()] if drawing else self._cased),
        ]
        if self.fit is not None and self.fit.format.name == markers.OWN:
            # Reasoning may begin with a text of the source; what such an answer says is open.
            write, texts = self.fit.format.write, markers.texts(self.cls)
            found += [Sample(write(Message(f"{text}I think.", "I say it."))) for text in texts]
        return found

    @cached_property
    def _cased(self) -> list[Sample]:
        """A sample of the profile with letters of another case, where it may have more of them."""
        for sample in self.given:
            plain, cased = (holding(sample, text) for text in ("Well", CASED))
            if plain is not None and cased is not None and plain.says is not None:
                bench, answer = self.for_sample(plain)
                return [cased] if bench.whole(answer).same(plain.says) else []
        return []

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

    def acts(self, message: Message) -> bool:
        """Tell whether a parser found in an answer what it is there for."""
        return bool(message.calls if self.role == TOOL else message.reasoning)

    @cached_property
    def _sought(self) -> tuple[formats.Fit | None, str]:
        """Return the format that the parser reads, or why none is known."""
        if self.format is None and self.given:
            return None, ""  # the profile tells what answers look like
        bench, named = self.wanted.bench(self.cls), self.format is not None
        own = markers.thinking(self.cls) if self.role == REASONING else None
        known = (*formats.KNOWN[self.role], *([own] if own else []))
        tried = (self.format,) if self.format else known
        found, raised = formats.fits(bench, tried, named=named)
        unsaid = () if named or bench.special else self.marked
        if not found and raised and unsaid:  # it may read a known format beside tokens of its own
            found, raised = formats.fits(attrs.evolve(bench, special=unsaid), tried, named=named)
        # Rather its own, or one that holds more: several calls, any values, text.
        if found:
            return max(found, key=self._worth), ""
        where = f"{len(tried)} known formats"
        made = formats.misread(bench, tried)
        told = made and f"none of {where} is read as it is meant: {made}"
        return None, self.way_out(f"any of {where}", raised, told)

    @cached_property
    def marked(self) -> tuple[str, ...]:
        """Markers that stand in the source of the class."""
        return markers.of_source(self.cls)

    def known(self, fit: formats.Fit) -> bool:
        """Tell whether a format is known to be the parser's: it is one of vLLM's own."""
        return fit.bench.name in fit.format.parsers

    def _worth(self, fit: formats.Fit) -> tuple[bool, ...]:
        found, says = fit.format, fit.format.probe
        written = {token for token in found.special if token in found.write(says)}
        # What a parser looks for is what its model writes: a text that only has no markers for it
        # may be read, too.
        looks = bool(written) and written <= {*self.marked}
        return self.known(fit), looks, found.several, not found.letters, found.content

    def way_out(self, where: str, raised: str | None = None, made: str | None = None) -> str:
        """Say that the parser found nothing, and what a profile would have to say."""
        return markers.way_out(self.cls, self.role, where, raised, made)

    def made(self) -> Bench:
        """Return the parser with tokens with which an instance can be made, of whatever format.

        Raises:
            NotMade: it raised, with tokens that the profile names or without any need.
            Undecided: it raised with the tokens of each format that is known, or refused those
                that the profile names.

        """
        if why := formats.unfit(self.cls, self.role):
            raise NotMade(why)
        bench = self.wanted.bench(self.cls) if self.fit is None else self.fit.bench
        named = self.fit is not None or bench.model is not None or bench.special or self.given
        known = [each.special for role in formats.KNOWN.values() for each in role]
        raised = None
        for tokens in [bench.special] if named else [*known, self.marked]:
            tried = attrs.evolve(bench, special=tokens)
            try:
                tried.instance()
            except NotMade as error:
                raised = error
            else:
                return tried
        assert raised is not None
        if named:
            made_up = self.fit is None and bench.model is None
            if made_up and vocabulary.depends_on_it(raised.__cause__):
                raise Undecided(markers.its_own_tokens(raised))
            raise raised
        special = markers.special_tokens(self.cls, '"<call>"')
        raise Undecided(
            f"making an instance raised {raised} with the tokens of every known format; name "
            f"those of the model in the profile: [parser] special_tokens = [{special}]"
        )
