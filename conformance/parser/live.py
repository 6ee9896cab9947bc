# SPDX-License-Identifier: Apache-2.0
"""What the trial on a server has done in processes of their own, for it never calls the plugin.

A server is forked from the process of its trial: whatever a class had kept there, the server's
would have kept as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

from conformance.engine.saying import saying
from conformance.interruption import PluginHung
from conformance.parser.bench import Bench, NotMade, PluginExited, Stream
from conformance.parser.checks import trial
from conformance.parser.clients import Question
from conformance.parser.formats import KNOWN
from conformance.parser.search import draw
from conformance.parser.trial import Undecided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from conformance.parser.clients import Answer
    from conformance.parser.samples import Sample
    from conformance.parser.trial import Trial
    from conformance.settings import Budget

#: Answers that are drawn beside those that are known, and the most tokens of one.
DRAWN, LONGEST = 4, 400


@attrs.frozen(kw_only=True)
class Finding:
    """An errand: find out what a model would say to the plugin, and make that model."""

    role: str
    section: Mapping[str, Any]
    origin: str | None
    budget: Budget
    seed: int
    what: str = "conformance.parser.live:found"


@attrs.frozen(kw_only=True)
class Found:
    """What was found."""

    model: str | None = None  #: its folder
    special: tuple[str, ...] = ()
    questions: tuple[Question, ...] = ()  #: one for each answer
    malformed: tuple[Question, ...] = ()
    context: Mapping[str, Any] = attrs.field(factory=dict)
    way_out: str = ""  #: what a profile would have to say where nothing is found in any answer
    unmade: str | None = None  #: making an instance raised
    broken: str | None = None  #: it hung, or ended its process


def found(cls: type[Any], errand: Finding) -> Found:
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
    except NotMade as error:
        # What it needs is not known; so the server says what else is wrong.
        every = [token for each in KNOWN[errand.role] for token in each.special]
        special = tuple(dict.fromkeys((*judged.plain_bench().special, *every)))
        return Found(model=_model(special, judged), special=special, unmade=str(error))
    except Undecided as error:
        return Found(way_out=str(error))
    except (PluginHung, PluginExited) as error:
        return Found(broken=str(error))
    try:
        known = judged.first()
    except Undecided as error:
        return Found(way_out=str(error))
    samples = list(known)

    def keep(sample: Sample) -> None:
        samples.append(sample)

    if judged.drawing is not None:
        draw(judged.drawing.samples(), keep, DRAWN, errand.seed)
    markers = judged.drawing.format.markers if judged.drawing else bench.special
    wrong = [
        attrs.evolve(known[0], text=piece + known[0].text) for piece in (*markers, known[0].text)
    ]
    return Found(
        model=_model(bench.special, judged),
        special=bench.special,
        questions=_questions(judged, dict.fromkeys(samples)),
        malformed=_questions(judged, wrong),
        context=judged.context()["profile"],
        way_out=judged.way_out("any answer that a server was made to say"),
    )


def _model(special: tuple[str, ...], judged: Trial) -> str:
    bench = Bench(cls=judged.cls, role=judged.role, tools=(), special=special)
    return str(saying(bench.tokenizer))


def _questions(judged: Trial, samples: Any) -> tuple[Question, ...]:  # noqa: ANN401 - an iterable
    """Return a request for each answer that is not too long for a tiny model."""
    asked = []
    for sample in samples:
        bench, answer = judged.for_sample(sample)
        if len(answer) + len(bench.prompt_ids()) > LONGEST:
            continue
        tools = judged.tools if judged.loads == "TP-01" else ()
        asked.append(Question(sample=sample, prompt=bench.prompt, ids=answer.ids, tools=tools))
    return tuple(asked)


@attrs.frozen(kw_only=True)
class Play:
    """An errand: do without a server what came of a question."""

    role: str
    special: tuple[str, ...]
    question: Question
    answer: Answer
    what: str = "conformance.parser.live:played"


def played(cls: type[Any], errand: Play) -> Stream | None:
    """Return what the plugin says of the same tokens, in the same deltas, with no one before.

    None where no instance can be made.
    """
    question = errand.question
    bench = Bench(
        cls=cls,
        role=errand.role,
        tools=question.tools,
        special=errand.special,
        prompt=question.prompt,
        responses=question.responses,
    )
    answer = bench.answer(question.sample.text)
    try:
        if not question.stream:
            whole = bench.whole(answer)
            return Stream(whole, (), tuple(range(len(whole.calls))), ())
        cuts = errand.answer.cuts if errand.answer.sizes else range(1, len(answer))
        return bench.stream(answer, cuts)
    except NotMade:
        return None
