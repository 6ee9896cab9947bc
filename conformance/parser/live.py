# SPDX-License-Identifier: Apache-2.0
"""What the trial on a server has done in processes of their own, for it never calls the plugin.

A server is forked from the process of its trial: whatever a class had kept there, the server's
would have kept as well.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.asking import Question
from conformance.engine.saying import saying
from conformance.interruption import PluginHung
from conformance.parser.bench import TOOL, Bench, NotMade, PluginExited, Stream, guarded
from conformance.parser.checks import trial
from conformance.parser.formats import KNOWN
from conformance.parser.trial import Undecided
from conformance.search import examples

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from conformance.parser.messages import Message
    from conformance.parser.samples import Sample
    from conformance.parser.trial import Trial
    from conformance.settings import Budget

#: Answers that are drawn beside those that are known, and the most tokens of one.
DRAWN, LONGEST = 4, 400


@attrs.frozen(kw_only=True)
class Errand:
    """What is to be done: :func:`found` or :func:`played`."""

    what: str
    role: str
    section: Mapping[str, Any]
    origin: str | None
    budget: Budget
    seed: int
    special: tuple[str, ...] = ()  #: for one that plays: texts that are one token each
    question: Question | None = None
    sizes: tuple[int, ...] = ()  #: tokens of each delta; one by one, where there are none


@attrs.frozen(kw_only=True)
class Found:
    """What a model would say to the plugin, and the model that does."""

    why: str = ""  #: there is no more to say; or nothing was found in any answer
    broken: int | None = None  #: number of the rule that is broken instead
    model: str | None = None  #: its folder
    special: tuple[str, ...] = ()
    answers: tuple[tuple[Question, Message | None], ...] = ()  #: and what each says, if known
    malformed: tuple[Question, ...] = ()
    grammar: bool = False  #: whether the parser has the model obey one
    context: Mapping[str, Any] | None = None


def found(cls: type[Any], errand: Errand) -> Found:
    """Find out what a model would say to a class."""
    judged = trial(
        cls,
        errand.role,
        errand.section,
        origin=errand.origin,
        budget=errand.budget,
        seed=errand.seed,
    )
    try:
        bench = judged.made()
        samples = known = judged.first()
    except Undecided as error:
        return Found(why=str(error))
    except (PluginHung, PluginExited) as error:
        return Found(why=str(error), broken=2)
    except NotMade as error:
        # What it needs is not known; so the server says what else is wrong.
        plain = judged.plain_bench()
        every = [token for each in KNOWN[errand.role] for token in each.special]
        plain.special = tuple(dict.fromkeys((*plain.special, *every)))
        return Found(why=str(error), broken=1, model=str(saying(plain.tokenizer)))
    markers = bench.special
    if judged.drawing is not None:
        samples = [*known, *examples(judged.drawing.samples(), DRAWN, errand.seed)]
        markers = judged.drawing.format.markers
    request = bench.request(stream=True)
    adjusted = guarded("adjust_request", partial(bench.make(request).adjust_request, request))
    text = known[0].text
    wrong = [attrs.evolve(known[0], text=piece + text) for piece in (*markers, text)]
    return Found(
        why=judged.way_out("any answer that a server was made to say"),
        model=str(saying(bench.tokenizer)),
        special=bench.special,
        answers=tuple(_asked(judged, dict.fromkeys(samples))),
        malformed=tuple(question for question, _ in _asked(judged, wrong)),
        grammar=getattr(adjusted, "structured_outputs", None) is not None,
        context=judged.context()["profile"],
    )


def _asked(judged: Trial, samples: Iterable[Sample]) -> Iterable[tuple[Question, Message | None]]:
    """Return a request for each answer that is not too long for a tiny model."""
    tools = judged.tools if judged.role == TOOL else ()
    for sample in samples:
        bench, answer = judged.for_sample(sample)
        if len(answer) + len(bench.prompt_ids()) <= LONGEST:
            asked = Question(
                text=sample.text,
                ids=answer.ids,
                prompt=bench.prompt,
                tools=tools,
                template=bench.chat,
            )
            yield asked, sample.says


def played(cls: type[Any], errand: Errand) -> Stream | None:
    """Return what a class makes of the same tokens in the same deltas, with no one before.

    None where no instance can be made.
    """
    question = errand.question
    assert question is not None
    bench = Bench(
        cls=cls,
        role=errand.role,
        tools=question.tools,
        special=errand.special,
        prompt=question.prompt,
        responses=question.responses,
        chat=question.template,
    )
    answer = bench.answer(question.text)
    try:
        if not question.stream:
            whole = bench.whole(answer)
            return Stream(whole, (), tuple(range(len(whole.calls))), ())
        sizes = errand.sizes or (1,) * len(answer)
        return bench.stream(answer, [sum(sizes[:count]) for count in range(len(sizes))])
    except NotMade:
        return None
