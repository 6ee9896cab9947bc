# SPDX-License-Identifier: Apache-2.0
"""A tool parser and a reasoning parser together, as a server with both composes them."""

from typing import Self

import attrs
from hypothesis import strategies as st

from conformance.checking import Undecided, checks
from conformance.findings import Finding, inapplicable
from conformance.parser.bench import Bench
from conformance.parser.formats import LEAD, PROBE, THINKING, TOOL_FORMATS, Unsaid
from conformance.parser.messages import Message, quoted
from conformance.parser.roles import REASONING, TOOL, manager
from conformance.parser.samples import Drawing, Sample
from conformance.parser.trial import Judged, Trial

#: What must hold of a partner by itself, causes first.
ALONE = {
    TOOL: ("TP-01", "TP-03", "TP-04", "TP-05"),
    REASONING: ("RP-01", "RP-04", "RP-05", "RP-07"),
}


@attrs.frozen
class Pair:
    """Both parsers alone, and the reasoning that one of them reads."""

    trial: Trial  #: of the parser that is certified
    partner: Trial
    tool: Trial
    reasoning: Trial
    drawing: Drawing

    @classmethod
    def of(cls, trial: Trial) -> Self | None:
        """Return a parser with its partner, or None for one without.

        Raises:
            Undecided: how the model writes reasoning is not known.

        """
        partner = trial.partner
        if partner is None:
            return None
        tool, reasoning = (trial, partner) if trial.role == TOOL else (partner, trial)
        if reasoning.drawing is None:
            whose = "the profile" if reasoning is trial else "the profile beside the partner"
            raise Undecided(
                f"how the model writes reasoning is not known; give it in {whose}: "
                '[parser] chat_template = "...", or serialise = "..."'
            )
        return cls(trial, partner, tool, reasoning, reasoning.drawing)

    def benches(self, sample: Sample) -> tuple[Bench, Bench, Bench]:
        """Return both together, and each alone, with the same tokens."""
        bench, _ = self.tool.for_sample(sample)
        thinking = self.reasoning.bench
        chat = {**bench.chat, **thinking.chat}
        alone = bench.knowing(*thinking.special)
        alone = attrs.evolve(alone, prompt=thinking.prompt, chat=chat)
        other_alone = attrs.evolve(alone, cls=self.reasoning.cls, role=REASONING, parser=None)
        certified = alone if self.trial is self.tool else other_alone
        both = attrs.evolve(certified, partner=self.partner.cls, parser=None)
        return both, alone, other_alone

    def text(self, sample: Sample, thought: str) -> str | None:
        """Return an answer in which a sample comes behind reasoning; None if it never does.

        Content may have a place of its own, where calls do not stand behind it.
        """
        form = self.drawing.format
        if form.handover is not None and sample.says and sample.says.content:
            return None
        if form.handover is not None and form.thinks is not None:
            return f"{'' if form.opened else form.thinks[0]}{thought}{form.handover}{sample.text}"
        try:
            return form.write(Message(thought, sample.text))
        except Unsaid:
            return None


@checks("TP-14", after=("TP-05",))
@checks("RP-12", after=("RP-05", "RP-07"))
def handover(trial: Trial) -> Finding:
    """Compare calls behind reasoning with the same calls alone, cut anywhere."""
    pair = Pair.of(trial)
    if pair is None:
        return inapplicable("the profile names no partner")
    if waits := pair.partner.broken(ALONE[pair.partner.role]):
        return attrs.evolve(waits, message=f"of the partner: {waits.message}")

    def judge(example: tuple[Sample, str, tuple[int, ...]]) -> Judged:
        sample, thought, cuts = example
        text = pair.text(sample, thought)
        if text is None:
            return Judged(acted=False)
        both, tool, reasoning = pair.benches(sample)
        answer, rest = both.answer(text), tool.answer(sample.text)
        calls, *alone = (found for _, _, found in tool.ways(rest))
        if not calls.calls or not all(calls.same(each) for each in alone):
            return Judged(acted=False)
        expected = attrs.evolve(calls, reasoning=thought)
        parted = None if pair.drawing.format.handover else Message(thought, sample.text)
        ways = (each.ways(answer, cuts) for each in (reasoning, both))
        for (_, _, before), (how, _, found) in zip(*ways, strict=True):
            # Where reasoning alone is parted wrongly, another rule is broken, or the partner is.
            if (parted is None or before.same(parted)) and not found.same(expected):
                told = f"{quoted(answer.text)} {how}: {found}; expected {expected}"
                return Judged(wrong=told)
        return Judged()

    thoughts = pair.drawing.content
    cut = st.lists(st.integers(1, 120), max_size=6).map(lambda found: tuple(sorted(found)))
    return trial.sought(
        [(sample, THINKING.reasoning, ()) for sample in pair.tool.first()],
        st.tuples(pair.tool.answers(), thoughts, cut),
        judge,
        text=lambda example: pair.text(*example[:2]),
        where="any answer behind reasoning",
    )


@checks("RP-20", after=("RP-05", "RP-18"))
def without(trial: Trial) -> Finding:
    """Compare answers without reasoning, with and without a call, streamed with whole."""
    drawing = trial.drawing
    if drawing is not None and drawing.format.opened:
        return inapplicable("reasoning begins in every prompt")
    alone, texts = _calling(trial)
    both = attrs.evolve(alone, cls=trial.cls, role=trial.role, partner=alone.cls, parser=None)

    def judge(text: str) -> Judged:
        answer = both.answer(text)
        ways = both.ways(answer)
        _, _, expected = next(ways)
        _, *calls = (len(found.calls) for _, _, found in alone.ways(answer))
        if expected.reasoning or expected.raised or {*calls} != {len(expected.calls)}:
            return Judged(acted=False)  # it is reasoning; or the parser of calls is to blame
        for how, _, found in ways:
            if not found.same(expected):
                beside = f"beside {alone.cls.__name__}, {how}"
                return Judged(wrong=f"{quoted(text)} {beside}: {found}; whole: {expected}")
        return Judged()

    known = ["I say it.", *texts]
    shown = [judge(text) for text in known]
    # Where text alone is reasoning, what calls look like may end it.
    if not shown[0].acted and not any(each.wrong for each in shown):
        why = "the parser takes an answer without markers for reasoning"
        return inapplicable(why)
    drawn = None if drawing is None else drawing.content
    return trial.sought(known, drawn, judge)


def _calling(trial: Trial) -> tuple[Bench, list[str]]:
    """Return a parser of calls with the tokens of both, and answers with calls.

    Where no partner is named, it is that of Hermes.
    """
    bench = trial.bench
    told = [each for each in trial.given if each.says is not None and not each.says.reasoning]
    # A model is made to answer without reasoning by its prompt, where a sample has that.
    prompt = next((each.prompt for each in told if each.prompt is not None), bench.prompt)
    if (partner := trial.partner) is not None:
        cls, special = partner.cls, partner.bench.special
        texts = [sample.text for sample in partner.first()]
    else:
        form = next(each for each in TOOL_FORMATS if each.name == "hermes")
        cls, special = manager(TOOL).get_tool_parser(form.name), form.special
        texts = [form.write(Message("", lead, (PROBE,))) for lead in ("", LEAD)]
    made = attrs.evolve(bench, cls=cls, role=TOOL, prompt=prompt, parser=None)
    return made.knowing(*special), texts
