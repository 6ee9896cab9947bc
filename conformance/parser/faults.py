# SPDX-License-Identifier: Apache-2.0
"""Checks of what goes wrong: answers that end early or make no sense, and other requests."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import attrs
from hypothesis import strategies as st

from conformance.checking import checks
from conformance.findings import Finding, failed
from conformance.parser import tokens
from conformance.parser.bench import WHOLE, Bench, Streaming
from conformance.parser.formats import PROBE
from conformance.parser.messages import Call, Message, Stream, quoted
from conformance.parser.roles import NAME, TOOL, name_of
from conformance.parser.samples import HARD, Sample
from conformance.parser.tokens import Answer
from conformance.parser.tools import an_object, tool
from conformance.parser.trial import Judged, Trial
from conformance.settings import Budget

#: Truncated answers of each that is drawn; of those that are known, all are tried, but at budget
#: quick no more than so many.
ENDS, MOST = 3, 100

#: What may stand where a name or arguments are expected: JSON of other types, escapes that JSON
#: does not have, and one of half a character.
MISTYPED = ("null", "5", '["x"]', '"x"', r'"\get"', r'"\ud83d"', r'{"x": "\y"}', r'{"x": "\ud83d"}')

#: A number of more digits than Python makes an int of, and lists within more of them than it
#: follows; and in how many deltas they come.
OUTSIZE, PARTS = ("7" * 5_000, "[" * 2_000 + "]" * 2_000), 8

#: A call of which an argument is a number.
DAYS = Call(PROBE.name, '{"days": 3}')

#: What no tool of a request is called, nor an argument of one, as models make them up.
MADE_UP = "no_such_thing"

#: Types of an argument of tools with one name, and names that no other tool of requests has.
KINDS, NEW = ("integer", "string"), ("count_days", "count_hours")

#: What any model may say.
PLAIN = "It rains. "


@checks("TP-09")
@checks("RP-09")
def alone(trial: Trial) -> Finding:
    """Compare what an answer gives after others, and among them, with what it gives alone."""

    def judge(_: Sample, bench: Bench, answer: Answer, other: Sample) -> Judged:
        expected = bench.by_token(answer)
        for how, found in _again(bench, answer, *trial.for_sample(other)):
            if not found.alike(expected):
                same = found.indices == expected.indices
                indices = "" if same else f" with the indices {found.indices}"
                told = f"{quoted(answer.text)} {how}: {found.said}{indices}"
                return Judged(wrong=f"{told}; before: {expected.said}")
        if (wrong := tokens.altered(bench.tokenizer)) is not None:
            return Judged(wrong=wrong)
        return trial.right(expected.said, lambda: bench.whole(answer))

    wrong = _of_another_schema(trial)
    return failed(wrong) if wrong else trial.search_with(trial.answers(), judge, trial.first()[:2])


def _of_another_schema(trial: Trial) -> str | None:
    """Say what calls of a tool are that are others after a request whose tool has its name.

    No request has had these names before; of each the types come in another order.
    """
    drawing = trial.drawing
    if trial.role != TOOL or drawing is None or not drawing.free:
        return None
    found: dict[str, list[list[str]]] = {kind: [] for kind in KINDS}
    for name, kinds in zip(NEW, (KINDS, KINDS[::-1]), strict=True):
        for sample in drawing.saying(Message(calls=(Call(name, '{"city": "42"}'),))):
            for kind in kinds:
                schema = tool(name, an_object({"city": {"type": kind}}))
                bench, answer = trial.for_sample(attrs.evolve(sample, tools=(schema,)))
                calls = (*bench.whole(answer).calls, *bench.by_token(answer).said.calls)
                found[kind].append([call.arguments for call in calls])
    for kind, made in found.items():
        first, after = (made if kind == KINDS[0] else made[::-1]) or ([], [])
        if first != after:
            return (
                f"calls of a tool whose city is of type {kind} have the arguments {first}, and "
                f"{after} after a request whose tool of the same name has another type for it"
            )
    return None


def _again(
    bench: Bench, answer: Answer, other_bench: Bench, other: Answer
) -> Iterator[tuple[str, Stream]]:
    """Yield how an answer comes again, behind and beside another one, and what is streamed."""
    yield "a second time", bench.by_token(answer)
    broken_off = Streaming(other_bench, other, range(1, len(other)))
    for _ in range(len(other) * 2 // 3):
        broken_off.step()
    del broken_off
    yield f"after {quoted(other.text)} was broken off", bench.by_token(answer)
    for own in (False, True):
        one = Streaming(bench, answer, range(1, len(answer)))
        # With n choices there is a parser for each, and one request.
        second = (bench, bench.answer(other.text)) if own else (other_bench, other)
        two = Streaming(*second, range(1, len(second[1])), beside=one if own else None)
        more = True
        while more:
            more = two.step()
            more = one.step() or more
        yield f"beside {quoted(other.text)}{', a choice of the same request' * own}", one.end()


@checks("TP-10", after=("TP-03", "TP-04", "TP-05"))
@checks("RP-10", after=("RP-03", "RP-04"))
def truncated(trial: Trial) -> Finding:
    """End answers after any of their tokens: nothing raises, and complete calls stay."""

    def judge(_: Sample, bench: Bench, answer: Answer, ends: tuple[int, ...]) -> Judged:
        complete = bench.whole(answer)
        step = -(-len(answer) // MOST) if trial.budget is Budget.QUICK else 1
        places = [end % len(answer) for end in ends] or range(1, len(answer), step)
        for place in places:
            first = answer.first(max(1, place))
            if wrong := _wrong(bench, first, complete.calls):
                return wrong
        return Judged(trial.acts(complete))

    ends = st.tuples(*[st.integers(1, 200)] * ENDS)
    return trial.search_with(ends, judge, [()])


@checks("TP-11", after=("TP-10",))
@checks("RP-11", after=("RP-10",))
def malformed(trial: Trial) -> Finding:
    """Give answers of which parts are missing, doubled, or come from elsewhere."""
    drawing = trial.drawing
    # Of vLLM's own some are stubs, whose answers another class reads.
    unknown = drawing is None and not trial.given and name_of(trial.cls, trial.role) == NAME
    if unknown:
        bench = trial.made()
        known = (*HARD, *bench.special)  # whatever the format is, it raises at none of these
        for text in (PLAIN, *known, *(f"{PLAIN}{piece}{PLAIN}" for piece in known)):
            if wrong := _wrong(bench, bench.answer(text)):
                return failed(str(wrong.wrong))
    markers = drawing.format.markers if drawing else trial.bench.special
    texts = [sample.text for sample in trial.first()]
    whole = (*markers, *texts, *_mistyped(texts))
    pieces = (*HARD, *whole)
    change = st.tuples(st.integers(0, 200), st.integers(0, 20), st.sampled_from(("", *pieces)))

    def judge(
        sample: Sample, bench: Bench, intact: Answer, changes: list[tuple[int, int, str]]
    ) -> Judged:
        text = sample.text
        for place, length, piece in changes:
            start = place % (len(text) + 1)
            text = text[:start] + piece + text[start + length :]
        if wrong := _wrong(bench, bench.answer(text)):
            return wrong
        return Judged(trial.acts(bench.whole(intact)))

    for text in _outsize(trial):
        answer = trial.bench.answer(text)
        # More deltas would take long.
        few = range(0, len(answer), max(1, len(answer) // PARTS))
        if wrong := _wrong(trial.bench, answer, few=few):
            scene = wrong.scene() if wrong.scene else {}
            return failed(str(wrong.wrong), case={"answer": {"text": text}, "program": scene})
    twice = [[(0, 0, piece)] for piece in whole]
    return trial.search_with(st.lists(change, min_size=1, max_size=3), judge, twice)


def _outsize(trial: Trial) -> Iterator[str]:
    """Yield answers with values that are no mistakes, but more than decoders take."""
    drawing, city = trial.drawing, str(PROBE.value["city"])
    for sample in drawing.of_each_type() if drawing is not None else ():
        # The schema wants a number: vLLM's own coerce_to_schema_type raises at such lists there.
        if sample.text.count("3") == 1 and sample.says == Message(calls=(DAYS,)):
            yield sample.text.replace("3", OUTSIZE[0])
    texts = ((sample.text, part) for sample in trial.first() for part in (f'"{city}"', city))
    text, part = next((each for each in texts if each[0].count(each[1]) == 1), ("", city))
    yield from (text.replace(part, value) for value in OUTSIZE if text)


def _mistyped(texts: Iterable[str]) -> Iterator[str]:
    """Yield answers in which something else stands for a name, or for arguments."""
    for text in texts:
        for part in (PROBE.name, *PROBE.value):
            if part in text:
                yield text.replace(part, MADE_UP)
        for part in (json.dumps(PROBE.name), PROBE.arguments):
            if text.count(part) == 1:
                yield from (text.replace(part, other) for other in MISTYPED)


def _wrong(
    bench: Bench,
    answer: Answer,
    calls: tuple[Call, ...] = (),
    few: Sequence[int] | None = None,
) -> Judged | None:
    """Say that the parser raises at an answer, or loses what it has said by then, or return None.

    Of *calls*, those of the answer with its rest, the ones behind which another has begun stay.
    It comes token by token, or cut before a *few* of them.
    """
    if few is not None:
        how = f"in {len(few)} deltas"
        ways = [(WHOLE, (), bench.whole(answer)), (how, few, bench.stream(answer, few).said)]
    else:
        ways = list(bench.ways(answer))
    begun = next(len(message.calls) for how, _, message in ways if how != WHOLE)
    kept = calls[: max(begun - 1, 0)]
    for how, cuts, message in ways:
        if message.raised is not None:
            scene = partial(bench.scene, "reads" if how == WHOLE else "goes_on", answer, cuts)
            return Judged(wrong=f"{quoted(answer.text)} {how}: {message}", scene=scene)
        if not Message(calls=message.calls[: len(kept)]).same(Message(calls=kept)):
            told = f"{quoted(answer.text)}, which ends there, {how}: {message}"
            complete = Message(calls=kept)
            scene = partial(bench.scene, "keeps", answer, says=complete.document)
            wrong = f"{told}; complete were {complete}"
            return Judged(wrong=wrong, scene=scene if how == WHOLE else None)
    return None
