# SPDX-License-Identifier: Apache-2.0
"""What the trial on a server has done in processes of their own, for it never calls the plugin.

A server is forked from the process of its trial: whatever a class had kept there, the server's
would have kept as well.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

import attrs

from conformance.checking import Undecided
from conformance.engine.asking import Question, saying
from conformance.parser import partners
from conformance.parser.bench import Bench, NotMade, Wish
from conformance.parser.calls import Asked, asked
from conformance.parser.checks import trial
from conformance.parser.formats import KNOWN, THINKING
from conformance.parser.handover import Pair
from conformance.parser.messages import Message, Stream
from conformance.parser.roles import TOOL, name_of
from conformance.parser.samples import Sample
from conformance.parser.trial import FATAL, Trial
from conformance.parser.wanted import Wanted
from conformance.plugin import registration
from conformance.search import examples

#: Answers that are drawn beside those that are known, and the most tokens of one.
DRAWN, LONGEST = 4, 400


@attrs.frozen(kw_only=True)
class Errand:
    """What is to be done: :func:`found` or :func:`played`."""

    what: str
    wanted: Wanted
    special: tuple[str, ...] = ()  #: for one that plays: texts that are one token each
    skipped: tuple[str, ...] = ()  #: those that are special tokens
    question: Question | None = None
    sizes: tuple[int, ...] = ()  #: tokens of each delta; one by one, where there are none


@attrs.frozen(kw_only=True)
class Found:
    """What a model would say to the plugin, and the model that does."""

    why: str = ""  #: there is no more to say; or nothing was found in any answer
    broken: int | None = None  #: number of the rule that is broken instead
    model: str | None = None  #: its folder
    special: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    #: The parser that the server has beside this one: its name, and how it is imported.
    partner: tuple[str, tuple[str, str]] | None = None
    answers: tuple[tuple[Question, Message | None], ...] = ()  #: and what each says, if known
    choices: tuple[tuple[Question, Asked], ...] = ()
    malformed: tuple[Question, ...] = ()
    alone: str = ""  #: why there is no partner
    grammar: bool = False  #: whether the parser has the model obey one
    context: Mapping[str, Any] | None = None


def found(cls: type[Any], errand: Errand) -> Found:
    """Find out what a model would say to a class."""
    judged = trial(cls, errand.wanted)
    try:
        judged.made()
        pair, alone = _pair(judged)
        told = pair.tool if pair is not None else judged
        bench = pair.benches(told.first()[0])[0] if pair is not None else judged.bench
        # The tokenizer of the model has no pieces of words.
        samples = known = [attrs.evolve(sample, pieces=False) for sample in told.first()]
    except Undecided as error:
        return Found(why=str(error))
    except FATAL as error:
        return Found(why=str(error), broken=2)
    except NotMade as error:
        # What it needs is not known; so the server says what else is wrong.
        every = [token for each in KNOWN[judged.role] for token in each.special]
        plain = judged.wanted.bench(cls).knowing(*every)
        return Found(why=str(error), broken=1, model=str(saying(plain.tokenizer)))
    markers = bench.special
    if told.drawing is not None:
        drawn = examples(
            attrs.evolve(told.drawing, typed=False).samples(), DRAWN, errand.wanted.seed
        )
        samples = [*known, *(attrs.evolve(sample, pieces=False) for sample in drawn)]
        markers = told.drawing.format.markers
    text = known[0].text
    wrong = [attrs.evolve(known[0], text=piece + text) for piece in (*markers, text)]
    asking = partial(_asked, told, pair)
    answers = tuple(asking(dict.fromkeys(samples)))
    return Found(
        why=judged.way_out("any answer that a server was made to say"),
        model=str(saying(bench.tokenizer)),
        special=bench.special,
        skipped=bench.skipped,
        partner=None if pair is None else _named(judged),
        alone=alone,
        answers=answers,
        choices=tuple(_choices(told, pair, known)) if told.role == TOOL else (),
        malformed=tuple(question for question, _ in asking(wrong)),
        grammar=_obeys(bench),
        context=judged.context()["profile"],
    )


def _pair(judged: Trial) -> tuple[Pair | None, str]:
    """Return the parser with its partner; or None, and why it has none."""
    try:
        return Pair.of(judged), "the profile names no partner"
    except Undecided as error:
        return None, str(error)


def _obeys(bench: Bench) -> bool:
    """Tell whether the model obeys a grammar."""
    return getattr(bench.adjusted(), "structured_outputs", None) is not None


def _named(judged: Trial) -> tuple[str, tuple[str, str]]:
    place, beside = partners.beside(judged.cls, judged.wanted), judged.partner
    assert place is not None
    assert beside is not None
    return name_of(beside.cls, beside.role), registration.imports(place, place.text)


def _asked(
    judged: Trial, pair: Pair | None, samples: Iterable[Sample]
) -> Iterable[tuple[Question, Message | None]]:
    """Return a request for each answer that is not too long for a tiny model.

    With a partner, it comes behind reasoning.
    """
    for sample in samples:
        bench, answer = judged.for_sample(sample)
        says = sample.says
        if pair is not None:
            text = pair.text(sample, THINKING.reasoning)
            if text is None:
                continue
            bench = pair.benches(sample)[0]
            answer = bench.answer(text)
            says = says and attrs.evolve(says, reasoning=THINKING.reasoning)
        if len(answer) + len(bench.prompt_ids()) <= LONGEST:
            asked = Question(
                text=answer.text,
                ids=answer.ids,
                prompt=bench.prompt,
                tools=bench.tools if bench.calls else (),
                template=bench.chat,
            )
            yield asked, says


def _choices(
    judged: Trial, pair: Pair | None, samples: Iterable[Sample]
) -> Iterable[tuple[Question, Asked]]:
    """Return requests that say more of calls, and the answers that these get."""
    for sample in samples:
        bench, answer = judged.for_sample(sample)
        says = bench.whole(answer)
        for asks in asked(bench, sample.text, says) if says.calls else ():
            wish, grammar = asks.wish, _obeys(bench.wishing(asks.wish))
            for question, _ in _asked(judged, pair, [attrs.evolve(sample, text=asks.text)]):
                asking = attrs.evolve(question, choice=wish.choice, parallel=wish.parallel)
                yield asking, attrs.evolve(asks, grammar=grammar)


def played(cls: type[Any], errand: Errand) -> Stream | None:
    """Return what a class makes of the same tokens in the same deltas, with no one before.

    None where no instance can be made.
    """
    question = errand.question
    assert question is not None
    bench = attrs.evolve(
        errand.wanted.bench(cls),
        tools=question.tools,
        special=errand.special,
        skipped=errand.skipped,
        partner=partners.partner(cls, errand.wanted),
        prompt=question.prompt,
        responses=question.responses,
        chat=question.template,
    )
    answer = bench.answer(question.text)
    bench = bench.wishing(Wish(question.choice, question.parallel))
    try:
        if not question.stream:
            whole = bench.whole(answer)
            return Stream(whole, (), tuple(range(len(whole.calls))), ())
        sizes = errand.sizes or (1,) * len(answer)
        cuts = [sum(sizes[:count]) for count in range(len(sizes))]
        return bench.stream(answer, cuts)
    except NotMade:
        return None
