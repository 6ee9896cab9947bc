# SPDX-License-Identifier: Apache-2.0
"""Checks of streamed calls and of requests: what a client and a server rely on."""

import json
from collections.abc import Iterator
from functools import partial

import attrs

from conformance.checking import checks
from conformance.findings import Finding
from conformance.parser import player
from conformance.parser.adjusting import naming
from conformance.parser.answers import differing
from conformance.parser.bench import WHOLE, Bench, Wish
from conformance.parser.formats import LEAD, PROBE, SECOND
from conformance.parser.messages import Message, quoted
from conformance.parser.roles import TOOL, base
from conformance.parser.samples import Sample
from conformance.parser.tokens import Answer
from conformance.parser.trial import Judged, Trial, of_each_answer


@checks("TP-07", after=("TP-09", "TP-03"))
@of_each_answer
def arguments(trial: Trial, _: Sample, bench: Bench, answer: Answer) -> Judged:
    """Look whether the arguments that were streamed are JSON in the end."""
    expected = bench.whole(answer)
    found = bench.by_token(answer).said
    for index, call in enumerate(found.calls):
        # A call of which nothing came is one that TP-04 knows to be lost.
        if call.arguments and isinstance(call.value, str):
            told = f"the arguments of call {index} came as {quoted(call.arguments)}"
            told = f"{told}, which is no JSON; whole: {expected}"
            return Judged(wrong=told, scene=partial(differing, bench, answer))
    return trial.right(found, lambda: expected)


@checks("TP-08", after=("TP-09", "TP-03"))
def order(trial: Trial) -> Finding:
    """Look whether each streamed call begins with its name, id and index."""

    def judge(sample: Sample, bench: Bench, answer: Answer) -> Judged:
        for how, cuts in (("token by token", range(1, len(answer))), ("in 1 delta", ())):
            if stumbles := bench.stream(answer, cuts).stumbles:
                told = f"{quoted(sample.text)} {how}: {stumbles[0]}"
                scene = partial(bench.scene, "begins", answer, cuts)
                return Judged(wrong=told, scene=scene)
        return trial.right(bench.by_token(answer).said, lambda: bench.whole(answer))

    return trial.search(judge, known=[*trial.first(), *_parted(trial)])


def _parted(trial: Trial) -> Iterator[Sample]:
    """Yield an answer with text between two calls, where the parser reads both of them."""
    if trial.drawing is None or not trial.drawing.format.several:
        return
    calls = trial.drawing.saying(*(Message(calls=(call,)) for call in (PROBE, SECOND)))
    if len({sample.text for sample in calls}) > 1:
        both = attrs.evolve(calls[0], text=f" {LEAD}".join(each.text for each in calls), says=None)
        bench, answer = trial.for_sample(both)
        if len(bench.whole(answer).calls) == len(calls):
            yield both


@checks("TP-18", after=("TP-08",))
@of_each_answer
def new_ids(trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Look whether calls have ids that those of the turn before have not."""
    first = bench.wishing(Wish(request_id=player.named(())))
    says = first.by_token(answer).said
    for streams, calls in ((False, first.whole(answer).calls), (True, says.calls)):
        turn = player.turn([(each.id, each.name, each.arguments) for each in calls])
        after = bench.wishing(Wish(earlier=turn, request_id=player.named(turn)))
        again = after.by_token(answer).said if streams else after.whole(answer)
        # What stands in the answer is the model's to say.
        known = {call.id for call in calls if call.id and call.id not in sample.text}
        for index, call in enumerate(again.calls):
            if call.id in known:
                way = "token by token" if streams else WHOLE
                told = f"{quoted(sample.text)} {way}, in two turns: call {index} of the second"
                told = f"{told} has the id {call.id!r}, as one of the first"
                scene = partial(bench.scene, "new_ids", answer, range(1, len(answer)))
                return Judged(wrong=told, scene=partial(scene, streams=streams))
    return trial.right(says, lambda: bench.whole(answer))


@checks("TP-15", after=("TP-12", "TP-05"))
@of_each_answer
def choices(_trial: Trial, sample: Sample, bench: Bench, answer: Answer) -> Judged:
    """Give answers to requests with each ``tool_choice``, and to such that want one call."""
    says, *streamed = (found for _, _, found in bench.ways(answer))
    if not says.calls or not all(each.same(says) for each in streamed):
        return Judged(acted=False)
    for asks in asked(bench, sample.text, says):
        if wrong := _misread(bench, asks):
            return Judged(wrong=wrong)
    return Judged()


@attrs.frozen
class Asked:
    """A request that says more of calls than that there may be some, and its answer."""

    wish: Wish
    text: str
    expected: tuple[Message, ...]  #: one of them
    hosts: bool = False  #: it is vLLM that reads the answer, as a grammar of its own
    grammar: bool = False  #: a model obeys one, so the answer may be none of this request

    @property
    def how(self) -> str:
        """The request in a few words."""
        off = "" if self.wish.parallel else " and parallel_tool_calls off"
        return f"for tool_choice {self.wish.choice!r}{off}"


def asked(bench: Bench, text: str, says: Message) -> Iterator[Asked]:
    """Return requests that the parser does not refuse, and what a model answers to each.

    Args:
        bench: the parser, and the tools.
        text: an answer in the model's own format, as requests without a grammar get it.
        says: what that says.

    """
    first = attrs.evolve(says, calls=says.calls[:1])
    yield Asked(Wish(parallel=False), text, (says, first))
    if not {call.name for call in says.calls} <= {each["function"]["name"] for each in bench.tools}:
        return  # a grammar has no place for what is no tool of the request
    named = naming(says.calls[0].name)
    in_json = [{"name": call.name, "parameters": call.value} for call in says.calls]
    for wish, grammar in (
        (Wish("required"), (json.dumps(in_json), (Message(calls=says.calls),))),
        (Wish(named), (says.calls[0].arguments, (Message(calls=first.calls),))),
    ):
        bench = bench.wishing(wish)
        found = bench.adjusted()
        if isinstance(found, Exception):
            continue  # TP-12 says which of these are refusals
        wanted = getattr(found.structured_outputs, "json", None)
        if wanted and wanted == bench.grammar():
            yield Asked(wish, *grammar, hosts=True)
        elif wanted or (found.structured_outputs is not None and says.content):
            continue  # a grammar of its own, or one of calls, in which there is no place for text
        elif wish.choice == "required" or first == says:
            yield Asked(wish, text, (says,))


def _misread(bench: Bench, asks: Asked) -> str | None:
    """Say how the parser misreads an answer, by what its request wants, or return None."""
    for way, _, found in bench.wishing(asks.wish).ways(bench.answer(asks.text)):
        if not any(found.same(each) for each in asks.expected):
            # What vLLM's base class, which reads nothing itself, would not get of this release
            # either is nobody's fault but the host's.
            bare = attrs.evolve(bench, cls=base(TOOL), parser=None)
            if asks.hosts and _misread(bare, attrs.evolve(asks, hosts=False)):
                return None
            told = f"{quoted(asks.text)} {asks.how}, {way}: {found}"
            return f"{told}; expected {asks.expected[-1]}"
    return None
