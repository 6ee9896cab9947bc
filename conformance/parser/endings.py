# SPDX-License-Identifier: Apache-2.0
"""Checks of where reasoning ends: what the grammar goes by, and what the client reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial

import attrs
from hypothesis import strategies as st
from vllm.reasoning import ReasoningParser

from conformance.checking import Undecided, checks
from conformance.findings import Finding, inapplicable
from conformance.parser.answers import agrees, differing
from conformance.parser.bench import Bench, guarded
from conformance.parser.formats import THINKING
from conformance.parser.messages import Message, quoted
from conformance.parser.samples import Sample
from conformance.parser.tokens import Answer
from conformance.parser.trial import Judged, Trial, of_each_answer
from conformance.watching.raised import placed

#: Tokens that a step of speculative decoding may bring at once.
STEP = 4

#: Tokens by which a text may have fewer within an answer than alone: those at its ends are joined.
JOINED = 2

#: Tokens that drafts have at most, which hold the end of reasoning and are rejected.
DRAFTS = 16

#: What the engine asks, and its twin in each step.
ENDS = ("is_reasoning_end", "is_reasoning_end_streaming")

#: What a class calls the markers that budgets of reasoning are counted by.
NAMED = ("reasoning_start_str", "reasoning_end_str")

#: What stands behind the content of an answer, as if one more began.
SECOND = Message("I think again.", "I say more.")

#: Why nothing is said of where reasoning ends.
ENDLESS = "reasoning was found, and is_reasoning_end was true after no answer"


@checks("RP-06", after=("RP-09",))
def twin(trial: Trial) -> Finding:
    """Compare the step at which the grammar is told with what the whole answer says."""

    def judge(sample: Sample, bench: Bench, answer: Answer) -> Judged:
        end = _end(bench, answer)
        if isinstance(end, str):
            return Judged(wrong=f"{quoted(sample.text)}: {end}")
        if end == 0:
            return Judged(acted=False)  # vLLM asks the prompt first, and then never the twin
        drafts = answer.ids[max(0, end - DRAFTS) : end] if end else ()
        for step, rejected in ((1, ()), (STEP, ()), (1, drafts)):
            told = _end(bench, answer, step, rejected)
            expected = None if end is None else -(-end // step) * step
            if told != expected and not isinstance(told, str):
                how = ", asked of them again and of drafts that are rejected" if rejected else ""
                first = f"in steps of {step}{how}, {ENDS[1]} is first true {_place(told)}"
                told = f"{first} and {ENDS[0]} {_place(end)}"
            if isinstance(told, str):
                return Judged(wrong=f"{quoted(sample.text)}: {told}")
        return Judged(end is not None)

    whole = (trial.bench.whole(trial.bench.answer(each.text)) for each in trial.first())
    found = any(message.reasoning for message in whole)
    return trial.search(judge, idle=ENDLESS if found else None)


@checks("RP-07", after=("RP-06", "RP-04"))
@of_each_answer
def gate(_trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Compare where reasoning ends with where the client's content begins."""
    end = _end(bench, answer)
    streamed = bench.by_token(answer)
    pieces = [*enumerate(streamed.pieces, 1)]
    content = next((n for n, piece in pieces if piece.content.strip()), None)
    last = max((n for n, piece in pieces if piece.reasoning.strip()), default=0)
    wrong = None
    if content is not None and (end is None or (isinstance(end, int) and content < end)):
        wrong = f"content begins {_place(content)}"
    elif isinstance(end, int) and last > end:
        wrong = f"reasoning comes {_place(last)}"
    if wrong:
        told = f"{quoted(sample.text)}: {wrong}, and {ENDS[0]} is true {_place(end)}"
        return Judged(wrong=told)
    return Judged(content is not None and last > 0, raised=streamed.said.error)


@checks("RP-08", after=("RP-06", "RP-03"))
@of_each_answer
def content_ids(_trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Compare the tokens that are said to be content with the content of the whole answer."""
    if not _end(bench, answer):
        return Judged(acted=False)  # it is called in the step in which reasoning ends
    expected = bench.whole(answer)
    told = f"{quoted(sample.text)}: extract_content_ids"
    found = _returned(bench, "extract_content_ids", answer)
    if not isinstance(found, list | tuple):
        return Judged(wrong=f"{told} {_instead(found, type(found).__name__)}")
    text = bench.tokenizer.decode(found, skip_special_tokens=True)
    thought, content = expected.reasoning.strip(), expected.content.strip()
    # Markers of the channel in which content stands are for the parser of calls.
    if content not in text or (thought and thought in text.replace(content, "", 1)):
        returned = f"the tokens of {quoted(text)}" if found else "no token"
        return Judged(wrong=f"{told} returned {returned}; whole: {expected}")
    return Judged(bool(expected.content))


@checks("RP-15", after=("RP-06", "RP-03"))
def counted(trial: Trial) -> Finding:
    """Compare the number of reasoning tokens with how many there are, markers or not."""
    if trial.cls.count_reasoning_tokens is ReasoningParser.count_reasoning_tokens:
        return inapplicable("the parser counts no reasoning tokens")

    def judge(sample: Sample, bench: Bench, answer: Answer) -> Judged:
        if (end := _end(bench, answer)) == 0:
            return Judged(acted=False)  # all of it is content
        most = end if isinstance(end, int) else len(answer)
        least = len(bench.answer(bench.whole(answer).reasoning)) - JOINED
        found = _returned(bench, "count_reasoning_tokens", answer)
        if isinstance(found, int) and least <= found <= most:
            return Judged(most > least > 0)
        told = f"count_reasoning_tokens {_instead(found, repr(found))}"
        there = f"of {len(answer)} tokens reasoning has {max(0, least)} to {most}"
        return Judged(wrong=f"{quoted(sample.text)}: {told}; {there}")

    return trial.search(judge)


@checks("RP-16", after=("RP-06", "RP-07"))
def earlier(trial: Trial) -> Finding:
    """Compare answers behind an earlier turn with the same answers behind none."""
    drawing = trial.drawing
    follow = None if drawing is None else drawing.format.behind
    known = [sample for sample in trial.given if sample.prompt is not None]
    if drawing is not None and drawing.format.opens:
        drawing = attrs.evolve(drawing, format=attrs.evolve(drawing.format, opened=True))
    elif follow is None:
        drawing = None
    known += [] if drawing is None else drawing.first()

    def prompts(sample: Sample, prompt: str) -> tuple[str, ...]:
        """Return those of later turns; none where it is the answer that begins its reasoning."""
        if follow is None or sample.says is None or sample in trial.given:
            return (f"{prompt}{sample.text}\n{prompt}",)
        begun = sample.text.lstrip().startswith(sample.says.reasoning)
        return follow(sample.says) if begun else ()

    def judge(sample: Sample) -> Judged:
        bench, answer = trial.for_sample(sample)
        expected = bench.by_token(answer).said
        if not expected.reasoning or (sample.says is not None and not expected.same(sample.says)):
            return Judged(acted=False)  # nor does it read the answer alone
        later = prompts(sample, bench.prompt)
        shown = (_behind(bench, answer, prompt) for prompt in later)
        return next((found for found in shown if found is not None), Judged(bool(later)))

    if not any(judge(sample).acted for sample in known):
        why = "the parser reads no reasoning that has begun in the prompt"
        if trial.drawing is not None and _begins(trial.drawing.first()):
            why = (
                "answers begin with their reasoning, and whether an earlier turn's end stands in "
                "a prompt is for the chat template to say, which the profile does not name"
            )
        return inapplicable(why)
    drawn = None if drawing is None else drawing.samples()
    return trial.sought(known, drawn, judge)


@checks("RP-17", after=("RP-04",))
def again(trial: Trial) -> Finding:
    """Compare streamed answers, which have markers where they mean nothing, with the same whole."""
    form = trial.fit.format if trial.fit is not None else None
    # The first of them stands in the prompt.
    begins = form.thinks[0] if form is not None and form.thinks is not None and form.opened else ""
    seconds = trial.first() if trial.drawing is None else trial.drawing.saying(SECOND)
    foreign = _foreign(trial, form.markers if form is not None else ())

    def twice(sample: Sample) -> Sample:
        second = next((each.text for each in seconds if each.text != sample.text), sample.text)
        return attrs.evolve(sample, text=f"{sample.text}{begins}{second}", says=None)

    def judge(sample: Sample, bench: Bench, _: Answer) -> Judged:
        wider = bench.knowing(*foreign)
        return agrees(trial, sample, wider, wider.answer(sample.text))

    first = trial.first()
    known = [*map(twice, first), *_amid(trial, first[0], foreign), *_unlabelled(trial, first)]
    return trial.search(judge, trial.answers().map(twice), known=known)


def _foreign(trial: Trial, own: Sequence[str]) -> list[str]:
    """Return markers that are none of reasoning: those of calls, and others in the source."""
    found: Sequence[str] = trial.marked
    if trial.partner is not None:
        with suppress(Undecided):  # how its model writes calls is not known
            found = (*trial.partner.bench.special, *found)
    return [each for each in dict.fromkeys(found) if each not in own]


def _amid(trial: Trial, sample: Sample, markers: Iterable[str]) -> Iterator[Sample]:
    """Yield answers that have each of some markers within their reasoning."""
    says = sample.says or trial.bench.whole(trial.bench.answer(sample.text))
    if (thought := says.reasoning.strip()) and sample.text.count(thought) == 1:
        for each in markers:
            if each not in sample.text:
                text = sample.text.replace(thought, f"{thought} Is it {each} now? {thought}")
                yield attrs.evolve(sample, text=text, says=None)


def _unlabelled(trial: Trial, samples: Iterable[Sample]) -> Iterator[Sample]:
    """Yield answers without the label that stands between a special token and their reasoning."""
    for sample in samples:
        bench, _ = trial.for_sample(sample)
        thought = sample.says.reasoning.strip() if sample.says is not None else ""
        before, found, _ = sample.text.partition(thought or " ")
        ends = [before.rfind(each) + len(each) for each in bench.special if each in before]
        if thought and found and ends and before[max(ends) :].strip():
            text = sample.text[: max(ends)] + sample.text[len(before) :]
            yield attrs.evolve(sample, text=text, says=None)


@checks("RP-22", after=("RP-03",))
def delimited(trial: Trial) -> Finding:
    """Look for the thought of an answer between the markers that the class names."""
    found = [guarded(name, partial(getattr, trial.bench.engine(), name)) for name in NAMED]
    if not all(isinstance(each, str) and each.strip() for each in found):
        return inapplicable("the parser names no start and no end of reasoning")
    start, end = found
    told = " and ".join(f"{name} is {each!r}" for name, each in zip(NAMED, found, strict=True))

    def judge(sample: Sample) -> Judged:
        text = f"{THINKING.reasoning}{end}{THINKING.content}"
        bench, _ = trial.for_sample(sample)
        # Where the start stands in the prompt, none is expected in the answer.
        begun = [text] if start.strip() in bench.prompt else []
        answers = [bench.answer(each) for each in (f"{start}{text}", *begun)]
        made = [bench.whole(each) for each in answers]
        if any(each.reasoning.strip() == THINKING.reasoning for each in made):
            return Judged()
        scene = partial(bench.scene, "whole", answers[-1], says=THINKING.document)
        wrong = f"{told}: of {quoted(answers[-1].text)} the parser made {made[-1]}"
        return Judged(wrong=wrong, scene=scene)

    return trial.sought(trial.first()[:1], None, judge)


@checks("RP-18", after=("RP-04", "RP-10"))
def broken_off(trial: Trial) -> Finding:
    """Compare answers that end within their reasoning, streamed with whole."""
    markers = (*trial.bench.special, *(trial.drawing.format.markers if trial.drawing else ()))
    # What may be a marker is held back as long as it may be one.
    held = tuple(each[:length] for each in markers for length in range(1, len(each) + 1))

    def within(answer: Answer, thought: str) -> list[str]:
        begins = answer.text.find(thought)
        firsts = [answer.first(end).text for end in range(1, len(answer))] if begins >= 0 else []
        return [
            first
            for first in firsts
            if 0 < len(so_far := first[begins:].strip()) < len(thought)
            and not so_far.endswith(held)
        ]

    def judge(sample: Sample, bench: Bench, answer: Answer, end: int | None) -> Judged:
        firsts = within(answer, (sample.says or bench.whole(answer)).reasoning.strip())
        found = Judged(acted=False)
        for first in firsts if end is None or not firsts else [firsts[end % len(firsts)]]:
            broken = attrs.evolve(sample, text=first, says=None)
            found = agrees(trial, broken, *trial.for_sample(broken))
            if found.wrong:
                break
        return found

    return trial.search_with(st.integers(0, 200), judge, [None])


def _begins(samples: Iterable[Sample]) -> bool:
    """Tell whether answers begin with their reasoning: no marker stands before it."""
    return all(
        each.says is None or each.text.startswith(each.says.reasoning.strip()) for each in samples
    )


def _behind(bench: Bench, answer: Answer, prompt: str) -> Judged | None:
    """Return what differs where an answer comes behind another prompt, or None."""
    after, expected = attrs.evolve(bench, prompt=prompt), bench.by_token(answer).said
    told = f"{quoted(answer.text)} behind the prompt {quoted(prompt)}"
    if not (found := after.by_token(answer).said).same(expected):
        told = f"{told}: {found}; behind {bench.prompt!r}: {expected}"
        return Judged(wrong=told, scene=partial(differing, after, answer))
    for what, step in zip(ENDS, (None, 1), strict=True):
        if (now := _end(after, answer, step)) != (before := _end(bench, answer, step)):
            told = f"{told}: {what} is true {_place(now)}"
            return Judged(wrong=f"{told}; behind {bench.prompt!r} {_place(before)}")
    return None


def _returned(bench: Bench, what: str, answer: Answer) -> object:
    """Return what a method of the engine's instance says of an answer, or what it raised."""
    return guarded(what, partial(getattr(bench.engine(), what), list(answer.ids)))


def _instead(found: object, returned: str) -> str:
    return f"raised {placed(found)}" if isinstance(found, Exception) else f"returned {returned}"


def _place(token: object) -> str:
    if token == 0:
        return "in the prompt"
    return "never" if token is None else f"at token {token}"


def _end(
    bench: Bench, answer: Answer, step: int | None = None, rejected: Sequence[int] = ()
) -> int | str | None:
    """Return after how many tokens reasoning has ended, None for never, or what is wrong instead.

    It is 0 where it has ended in the prompt.  With *step*, the twin is asked in steps of so many,
    and before each with drafts that are *rejected*, and with those that are not, as the engine
    does in ``validate_tokens`` and ``grammar_bitmask`` before ``accept_tokens``.
    """
    parser, prompt = bench.engine(), bench.prompt_ids()
    what, first = (ENDS[0], 0) if step is None else (ENDS[1], step)
    for end in range(first, len(answer) + (step or 1), step or 1):
        start, ask = end - (step or 0), getattr(parser, what)
        before, delta = [*prompt, *answer.ids[:start]], list(answer.ids[start:end])
        for draft in (rejected, delta) if rejected else ():
            guarded(what, partial(ask, [*before, *draft], list(draft)))
        found = guarded(what, partial(ask, [*before, *delta], *([] if step is None else [delta])))
        if isinstance(found, Exception):
            raised = f"{what} of the engine's own instance raised {placed(found)}"
            return f"{raised}; the engine gives it tokens alone, and streams no text with it"
        if step is None and not isinstance(found, bool | None):
            kind = f"{type(found).__module__}.{type(found).__name__}"
            told = f"{what} returned {found!r} {_place(end)}, of the type {kind}"
            return f"{told}; vLLM sends it to the engine, which takes bool | None (reasoning_ended)"
        if found:
            return end
    return None
