# SPDX-License-Identifier: Apache-2.0
"""Checks of what an answer says: whole, streamed token by token, and cut anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import attrs

from conformance.checking import checks
from conformance.findings import Finding, failed, passed, unjudged
from conformance.parser import samples
from conformance.parser.adjusting import lost
from conformance.parser.bench import WHOLE, Bench, NotMade
from conformance.parser.formats import LEAD, PROBE
from conformance.parser.messages import Message, apart, quoted, shortened
from conformance.parser.roles import REASONING
from conformance.parser.samples import Sample
from conformance.parser.tokens import Answer
from conformance.parser.tools import UNTYPED
from conformance.parser.trial import Judged, Trial, of_each_answer
from conformance.verdict import Verdict

#: Answers that are cut everywhere, their tokens, and how many of these come in one delta.
SHORT, LONGEST, JOINED = 4, 100, 2

#: Answers that are asked for through ``/v1/responses`` as well.
FEW = 2

#: Letters that are held back: all but one of those of a stop string.  One is as long as those of
#: most clients, and one longer than any marker.
HELD = (5, 40)

#: Numbers that Python reads and writes, and JSON does not have, and one that an answer has instead.
UNWRITTEN, HEIGHT = ("NaN", "Infinity", "1e999"), 48.8584

#: Why nothing is said of answers without calls.
NO_PLAIN = (
    "no sample is without a call; give one in the profile: [parser] samples = "
    '[{ text = "It rains.", content = "It rains." }]'
)


@checks("TP-01")
@checks("RP-01")
def made(trial: Trial) -> Finding:
    """Make an instance as this release does, also for tools without a schema."""
    bench = trial.made()
    if bench.calls:
        try:
            attrs.evolve(bench, tools=UNTYPED).instance()
        except NotMade as error:
            raise NotMade(f"given tools of which one has no parameters: {error}") from error
    return passed(1)


@checks("TP-03", after=("TP-12",))
@checks("RP-03")
def whole(trial: Trial) -> Finding:
    """Compare what is made of whole answers with what they say."""
    drawing = trial.drawing
    drawn = None if drawing is None else attrs.evolve(drawing, typed=False).samples()
    found = trial.search(partial(_means, trial), drawn)
    if trial.role != REASONING or found.verdict is Verdict.FAIL:
        return found
    asked = trial.sought(trial.first()[:FEW], None, partial(_responds, trial))
    return asked if asked.verdict is Verdict.FAIL else found


@checks("TP-13", after=("TP-03",))
def types(trial: Trial) -> Finding:
    """Compare the types of arguments with those that their schema says."""

    def judge(sample: Sample, bench: Bench, answer: Answer) -> Judged:
        found = _means(trial, sample, bench, answer)
        if found.wrong is None and sample.says is not None:
            found = attrs.evolve(found, **_elsewhere(bench, answer))
        return attrs.evolve(found, acted=found.acted and sample.says is not None)

    drawing = trial.drawing
    every = [] if drawing is None else drawing.of_each_type()
    found = trial.search(judge, known=[*trial.first(), *every])
    wrong = _no_json(trial, every) if found.verdict is Verdict.PASS else None
    return failed(wrong) if wrong else found


def _no_json(trial: Trial, samples: Sequence[Sample]) -> str | None:
    """Say what a parser makes of numbers that JSON does not have, where it writes the JSON."""
    for sample in samples:
        call = sample.says.calls[0] if sample.says is not None else PROBE
        if call.arguments in sample.text or call.value != {"height": HEIGHT}:
            continue
        for number in UNWRITTEN:
            bench, answer = trial.for_sample(sample)
            answer = bench.answer(sample.text.replace(str(HEIGHT), number))
            for how, _, message in bench.ways(answer):
                if any(each.arguments and isinstance(each.value, str) for each in message.calls):
                    return f"of {quoted(answer.text)} {how} the parser made {message}, not JSON"
    return None


def _elsewhere(bench: Bench, answer: Answer) -> dict[str, Any]:
    """Return what is wrong where the request is one of ``/v1/responses``, whose tools are flat."""
    other = attrs.evolve(bench, responses=True)
    try:
        ways = zip(bench.ways(answer), other.ways(answer), strict=True)
        differ = ((how, one, two) for (how, _, one), (_, _, two) in ways if not two.same(one))
        if (found := next(differ, None)) is None:
            return {}
        how, *said = found
        meant, made = apart(*said)
    except NotMade as error:
        how, made, meant = "making an instance", f"raised {error}", "an instance"
    told = f"{quoted(answer.text)} in /v1/responses, {how}: {made}; in chat: {meant}"
    return {"wrong": told, "scene": partial(bench.scene, "responses", answer)}


def _responds(trial: Trial, sample: Sample) -> Judged:
    """Compare what is made of an answer that ``/v1/responses`` gives, whose requests are others."""
    bench, answer = trial.for_sample(sample)
    sample = attrs.evolve(sample, says=sample.says or bench.whole(answer))
    bench = attrs.evolve(bench, responses=True)
    return _means(trial, sample, bench, bench.answer(sample.text))


def _means(trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    found = bench.whole(answer)
    made, meant = (str(found), "") if sample.says is None else apart(found, sample.says)
    through = ", asked for through /v1/responses," if bench.responses else ""
    told = f"of {quoted(sample.text)}{through} the parser made {made}"
    if sample.says is None or found.same(sample.says):
        shown = trial.right(found, lambda: bench.by_token(answer).said)
        shown = attrs.evolve(shown, wrong=told if found.raised else None)
        return attrs.evolve(shown, scene=partial(bench.scene, "reads", answer))
    scene = partial(_shown, bench, WHOLE, answer, found, says=sample.says.document)
    return Judged(wrong=f"{told}; expected {meant}{lost(bench, answer, sample.says)}", scene=scene)


@checks("RP-04", after=("RP-09", "RP-03"))
def streamed(trial: Trial) -> Finding:
    """Compare answers that are streamed token by token with the same answers whole."""
    known, drawing = trial.first(), trial.drawing
    known += drawing.long() if drawing is not None else []
    if drawing is not None and drawing.format.drops:
        led = drawing.saying(Message("", LEAD, (PROBE,)))
        known += [attrs.evolve(each, says=None, lead=LEAD) for each in led]
    return trial.search(partial(agrees, trial), known=known)


@checks("TP-04", after=("TP-09", "TP-03", "TP-07"))
def streamed_calls(trial: Trial) -> Finding:
    """Compare answers as above; where calls begin wrong, no more can be said than what differs."""
    found = streamed(trial)
    return found if found.verdict is Verdict.FAIL else trial.broken(("TP-08",)) or found


def agrees(trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Return what one shows that is streamed token by token, and whole."""
    expected = whole = bench.whole(answer)
    streamed = bench.by_token(answer)
    wrong, found = None, streamed.said
    if streamed.stumbles:  # what is wrong with the calls, TP-08 tells
        found, expected = (attrs.evolve(each, calls=()) for each in (found, expected))
    if sample.lead and not found.calls:
        return Judged(acted=False)  # streamed, it takes no text before calls
    if sample.lead and found.content.strip() in sample.lead:
        found = attrs.evolve(found, content=expected.content)
    if not found.same(expected):
        deltas, once = apart(streamed.said, whole)
        wrong = f"{quoted(sample.text)} streamed token by token: {deltas}; whole: {once}"
        for name in streamed.unknown:
            wrong += f"; a delta has {name}, which the DeltaMessage of this release does not know"
        chat = dict(bench.chat)
        bench.make(bench.request(stream=False), chat)
        if chat != bench.chat:
            wrong += f"; making an instance leaves {chat} of its chat_template_kwargs to the next"
    scene = partial(differing, bench, answer)
    return attrs.evolve(trial.right(whole), wrong=wrong, scene=scene)


@checks("TP-05", after=("TP-08", "TP-04"))
@checks("RP-05", after=("RP-04",))
def cut(trial: Trial) -> Finding:
    """Compare answers that are cut anywhere with the same tokens one by one."""

    def judge(_: Sample, bench: Bench, answer: Answer, cuts: Sequence[int]) -> Judged:
        expected = bench.by_token(answer).said
        wrong = None
        if not bench.stream(answer, cuts).said.same(expected):
            fewest = _fewest(bench, answer, cuts, expected, same=False)
            parts = [repr(text) for text, _ in answer.deltas(fewest)]
            deltas = "1 delta" if len(parts) == 1 else f"{len(parts)} deltas"
            found, wanted = apart(bench.stream(answer, fewest).said, expected)
            told = f"in {deltas}, {shortened(' | '.join(parts))}: {found}"
            wrong = f"{told}; token by token: {wanted}"
        scene = partial(differing, bench, answer, cuts)
        return attrs.evolve(trial.right(expected), wrong=wrong, scene=scene)

    known = [(), *(range(k, 1000, k) for k in (2, 8))]
    return trial.search_with(samples.cuts(), judge, known, _joined(trial))


@checks("TP-19", after=("TP-05", "TP-14"))
@checks("RP-19", after=("RP-05", "RP-06"))
@of_each_answer
def stops(trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Compare answers to requests with a stop string that is not in them with others."""
    expected = bench.by_token(answer).said
    for held in HELD:
        found = bench.by_token(answer, held=held).said
        if not found.same(expected):
            how = f"token by token, with a stop string of {held + 1} letters in the request"
            stopped, free = apart(found, expected)
            told = f"{quoted(sample.text)} {how}: {stopped}; without it: {free}"
            scene = partial(_shown, bench, "stops", answer, found, range(1, len(answer)), held=held)
            return Judged(wrong=told, scene=scene)
    return trial.right(expected)


def _joined(trial: Trial) -> Iterator[tuple[Sample, Sequence[int]]]:
    """Yield short answers in two deltas, and with some tokens in one, wherever these stand."""
    for sample in trial.first()[:SHORT]:
        _, answer = trial.for_sample(sample)
        for start in range(1, min(len(answer), LONGEST)):
            yield sample, (start,)
            yield sample, (start, *range(start + JOINED, len(answer)))


def differing(bench: Bench, answer: Answer, cuts: Sequence[int] | None = None) -> dict[str, Any]:
    """Return the smallest cut whose message is not that of the whole answer, for a program.

    Without cuts it is one that says the same as the answer token by token.  Where the parser
    raises, the program looks for nothing else.
    """
    if (whole := bench.whole(answer)).raised:
        return _shown(bench, WHOLE, answer, whole)
    if cuts is None:
        every, said = range(1, len(answer)), bench.by_token(answer).said
        fewest = _fewest(bench, answer, every, said, same=True)
    else:
        fewest = _fewest(bench, answer, cuts, whole, same=False)
    return _shown(bench, "streamed", answer, bench.stream(answer, fewest).said, fewest)


def _shown(
    bench: Bench,
    kind: str,
    answer: Answer,
    found: Message,
    cuts: Sequence[int] = (),
    **more: object,
) -> dict[str, Any]:
    """Return what a program plays: what is wrong with what was *found*, or that it was raised."""
    if found.raised is None:
        return bench.scene(kind, answer, cuts, **more)
    more.pop("says", None)
    return bench.scene("reads" if kind == WHOLE else "goes_on", answer, cuts, **more)


def _fewest(
    bench: Bench, answer: Answer, cuts: Sequence[int], said: Message, *, same: bool
) -> Sequence[int]:
    """Return the fewest of the cuts, or another one, with which a parser says the same, or not."""

    def wanted(tried: Sequence[int]) -> bool:
        return bench.stream(answer, tried).said.same(said) is same

    for tried in [(), *((place,) for place in range(1, len(answer)))]:
        if wanted(tried):
            return tried
    kept = [place for place in cuts if 0 < place < len(answer)]
    for place in list(kept):
        fewer = [other for other in kept if other != place]
        if wanted(fewer):
            kept = fewer
    return kept


@checks("TP-06", after=("TP-09",))
def text(trial: Trial) -> Finding:
    """Compare the content of answers without a call with their text."""
    drawing, bench = trial.drawing, trial.bench
    known = [bench.answer(sample.text) for sample in trial.first()]
    call = any(bench.whole(answer).calls for answer in known)
    # An exception at every answer, also one with calls, is what TP-04 tells.
    raises = all(bench.by_token(answer).said.raised for answer in known)

    def judge(sample: Sample, bench: Bench, answer: Answer) -> Judged:
        if sample.says is None or sample.says.calls:
            return Judged(acted=False)
        for how, cuts, found in bench.ways(answer):
            if raises and found.raised and how != WHOLE:
                continue
            if not found.same(sample.says):
                told = f"{quoted(sample.text)} {how}: {found}; expected all of it as content"
                says, kind = sample.says.document, "whole" if how == WHOLE else "deltas"
                scene = partial(_shown, bench, kind, answer, found, cuts, says=says)
                return Judged(call, told, scene)
        return Judged(call)

    plain = [each for each in trial.first() if each.says is not None and not each.says.calls]
    plain += drawing.fenced() if drawing is not None else []
    if not plain and drawing is None:
        return unjudged(NO_PLAIN)
    drawn = None if drawing is None else drawing.plain()
    return trial.search(judge, drawn, known=plain)
