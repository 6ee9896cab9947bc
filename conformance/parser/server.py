# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the parser in a live ``vllm serve``, as OpenAI's clients see it.

A tiny model says the answers that the simulator would give the parser, so what each means is known.
Where a client gets something else, the same is done without a server: if that is right, another
request has left something behind.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, NoReturn, TypeVar

import attrs
import openai

from conformance.engine import access, asking
from conformance.engine.asking import PROCESSOR, Question
from conformance.engine.server import Server
from conformance.live_trial import LiveTrial
from conformance.parser.live import Errand, Found
from conformance.parser.messages import Client, Message, Stream, quoted
from conformance.parser.roles import NAME, REASONING, ROLES, TOOL, name_of, other, plugin_file
from conformance.parser.wanted import Wanted
from conformance.plugin import registration
from conformance.verdict import Reason, must_wait
from conformance.watching.untouched import Ended, Untouched

#: Tokens of a delta, beside one: some, and all but the first.
INTERVALS = (8, 1000)

#: Requests at the same time, and clients that disconnect.
CROWD, LEAVING = 16, 4

#: Answers that are asked for through ``/v1/responses`` and cut off, and in how many parts.
FEW, PARTS = 3, 4

#: A stop string that is in no answer, and longer than markers are.
STOP = "!" * 40

#: How vLLM's own parser of answers in which there is no reasoning is imported.
_IDENTITY = (
    "from vllm.reasoning.identity_reasoning_parser import IdentityReasoningParser",
    "IdentityReasoningParser",
)


#: Rules about what is made of an answer; with a partner, what goes wrong may be the handover.
_OF_ANSWERS = (3, 4, 5, 7, 8)

_Known = TypeVar("_Known")


def both(asked: Iterable[tuple[Question, _Known]]) -> list[tuple[Question, _Known]]:
    """Return each question twice: its answer not streamed, and streamed."""
    ways = (False, True)
    return [(attrs.evolve(each, stream=way), known) for each, known in asked for way in ways]


class _Over(Exception):
    """Nothing more can be asked; why is in the ledger."""


@attrs.define(eq=False)
class Trial(LiveTrial):
    """The trial of one parser in a live server, which starts when the trial is opened."""

    host: ClassVar[str] = "chat and responses"

    role: str
    found: Found = attrs.field(init=False)
    _wanted: Wanted = attrs.field(init=False)
    _untouched: Untouched = attrs.field(init=False)
    _sdk: openai.AsyncOpenAI = attrs.field(init=False)
    #: What each answer gave, token by token, when nobody else was served.
    _alone: list[tuple[Question, Stream]] = attrs.field(init=False, factory=list)
    #: Whether there was a request that may have left something behind.
    _before: bool = attrs.field(init=False, default=False)

    def __attrs_post_init__(self) -> None:
        """Find out what the model is to say, and start the server.

        Raises:
            UsageError: the profile is wrong.

        """
        opening = self.opening
        self._wanted = Wanted.of(opening, self.role)
        self._wanted.samples(), self._wanted.format()
        self._untouched = Untouched.fork(opening.cls)
        self.ends.callback(self._untouched.close)
        self.found = Found(
            why="a server that runs already says what its own model says: without --server-url "
            "the harness starts one that says what it is told"
        )
        if not opening.settings.server_url:
            self.found = self._untouched.run(self._errand("found"))
        if self.found.model is None:
            self.ledger.stop(self._why())
        else:
            self.serve(self._start(self.found.model))

    def _errand(self, what: str) -> Errand:
        return Errand(
            what=f"conformance.parser.live:{what}",
            wanted=self._wanted,
            special=self.found.special,
            skipped=self.found.skipped,
        )

    def _why(self) -> Reason:
        """Return why nothing can be asked."""
        broken, why = self.found.broken, self.found.why
        return why if broken is None else must_wait([self._rule(broken)], why)

    def _rule(self, number: int) -> str:
        return ROLES[self.role].rule(number)

    @property
    def _together(self) -> str:
        return self._rule(ROLES[self.role].together)

    def _start(self, model: str) -> Server:
        opening, folder = self.opening, Path(self.opening.folder)
        name = name_of(opening.cls, self.role)
        arguments = [f"--max-num-seqs={CROWD}", "--max-model-len=512"]
        served = {self.role: (name, registration.imports(opening.plugin, opening.plugin.target))}
        if self.found.partner is not None:
            served[other(self.role)] = self.found.partner
        elif self.role == TOOL and name == NAME:
            # Requests that want no calls are adjusted only beside a reasoning parser.
            served[REASONING] = NAME, _IDENTITY
        if self.role == TOOL and REASONING not in served:
            self.ledger.beside["TP-12"] = "by its name vLLM does not ask it to adjust such requests"
        if self.found.partner is None:
            self.ledger.beside[self._together] = self.found.alone
        for role, (each, imports) in served.items():
            arguments.append(f"--{ROLES[role].option}={each}")
            if role == TOOL:
                arguments.append("--enable-auto-tool-choice")
            if each == NAME:
                arguments.append(plugin_file(folder, role, imports))
        return Server.start(
            model,
            log=folder / "server.log",
            logits_processors=[PROCESSOR],
            python_path=[*opening.python_path(), Path(__file__).parents[2]],
            device=self.device,
            arguments=arguments,
            imported=True,
            runner="v1",
        )

    def document(self) -> Mapping[str, Any] | None:
        """Return what the parser is tried with."""
        return self.found.context

    def run(self) -> None:
        """Ask for every answer in every way, alone and among others."""
        loads = self._rule(1)
        if not self.healthy(loads=loads, how=f"as the {self.role} parser of vllm serve"):
            return
        if self.found.broken is not None:  # by what a server does not do when it starts
            self.ledger.stop(self._why())
            return
        self.ledger.saw(loads)
        with suppress(_Over):
            asyncio.run(self._run())
            if death := self.death():
                self._fail(2, death)
            self.ledger.saw(self._rule(2))
            numbers = (*_OF_ANSWERS, 9, 15) if self.role == TOOL else (*_OF_ANSWERS, 9)
            for rule in (*map(self._rule, numbers), self._together):
                self.ledger.remarks[rule] = self.found.why

    async def _run(self) -> None:
        async with access.sdk(self.server.url, asking.LIMIT) as self._sdk:
            for judge in (
                self._free,
                self._answers,
                self._choices,
                self._stops,
                self._responses,
                self._crowd,
                self._faults,
            ):
                await judge()

    async def _ask(
        self, asked: Iterable[tuple[Question, _Known]], crowd: int = CROWD
    ) -> list[tuple[Question, Stream, _Known]]:
        """Ask questions, so many at a time; return all answers, with what is known of each.

        Raises:
            _Over: the server died, or has stalled.

        """
        name, left = self.server.model_name, [*asked]
        found: list[tuple[Question, Stream, _Known]] = []
        while left:
            now, left = left[:crowd], left[crowd:]
            heard = await asyncio.gather(*(asking.ask(self._sdk, name, each) for each, _ in now))
            for (question, known), each in zip(now, heard, strict=True):
                what = f"{quoted(question.text)}, {question.how}"
                if len(now) > 1:
                    what += f", or one of the {len(now) - 1} requests beside it"
                if each.silent and self.server.healthy():
                    self.ledger.stop(f"this machine is too slow: {what}, took {asking.LIMIT:.0f} s")
                    raise _Over
                death = self.death() if each.raised is not None else None
                if each.silent or death:
                    stalled = f"the server has answered nobody for {asking.LIMIT:.0f} s"
                    self._fail(2, f"{what}: {death or stalled}")
                client = Client()
                for delta in each.deltas:
                    client.receive(delta)
                found.append((question, client.stream(each.raised, each.sizes), known))
        return found

    def _fail(self, number: int, message: str) -> NoReturn:
        self.ledger.fail(self._rule(number), message)
        raise _Over

    def _saw(self, answer: Stream, *numbers: int) -> None:
        """Note that rules held, where the parser found what it is there for."""
        if answer.said.calls if self.role == TOOL else answer.said.reasoning:
            for number in numbers:
                self.ledger.saw(self._rule(number))

    def _wrong(self, number: int, question: Question, answer: Stream, what: str) -> NoReturn:
        """Fail a rule; where the same is right without others, that about other requests.

        *what* is what should have come, or what is wrong with what did.
        """
        told = f"{quoted(question.text)}, {question.how}: {answer.said}; {what}"
        alone = self._without_server(question, answer.sizes)
        if self._forbidden(answer, alone):
            self.ledger.stop(f"{told}; the parser has the model obey a grammar that forbids it")
            raise _Over
        if self._before and alone is not None and not alone.alike(answer):
            self._fail(9, f"{told}; by itself, in a process of its own: {alone.said}")
        if self.found.partner is not None and number in _OF_ANSWERS:
            self.ledger.fail(self._together, told)
            raise _Over
        self._fail(number, told)

    def _forbidden(self, answer: Stream, alone: Stream | None, *, grammar: bool = False) -> bool:
        """Tell whether no parser raised, but a grammar that a real model would have obeyed.

        *grammar*: that the request has one, where others have none.
        """
        raised = alone is None or alone.said.raised is not None
        obeys = grammar or self.found.grammar
        return obeys and answer.said.raised is not None and not raised

    def _without_server(self, question: Question, sizes: tuple[int, ...] = ()) -> Stream | None:
        """Return what the parser gives of the same without a server; None if none can be made."""
        errand = attrs.evolve(self._errand("played"), question=question, sizes=sizes)
        try:
            found: Stream | None = self._untouched.run(errand)
        except Ended:
            return None
        return found

    async def _free(self) -> None:
        """A request without use for tools gets what the model says."""
        if self.role != TOOL or self._rule(12) in self.ledger.beside:
            return
        for question, _ in self.found.answers[:1]:
            free = (
                (attrs.evolve(question, choice="none"), "with tool_choice none"),
                (attrs.evolve(question, tools=()), "without tools"),
            )
            for asked, answer, kind in await self._ask(both(free)):
                if answer.said.raised is not None or answer.said.calls:
                    self._fail(12, f"a request {kind}, {asked.how}, got {answer.said}")
            self.ledger.saw(self._rule(12), 4)

    async def _answers(self) -> None:
        """Every answer gives the same whole, streamed, and in larger deltas."""
        first = await self._ask(self.found.answers, crowd=1)
        self._alone = [(question, streamed) for question, streamed, _ in first]
        self._before = True
        others = await self._ask(
            (attrs.evolve(question, stream=interval > 0, interval=max(interval, 1)), number)
            for number, (question, _) in enumerate(self._alone)
            for interval in (0, *INTERVALS)
        )
        for number, (question, streamed, says) in enumerate(first):
            (asked, whole), *wider = ((each, come) for each, come, of in others if of == number)
            expected = says or whole.said
            if not whole.said.same(expected) or whole.said.raised is not None:
                self._wrong(3, asked, whole, f"expected {expected}")
            self._saw(whole, 3)
            self._complete(question, streamed)
            if not streamed.said.same(whole.said):
                # A busy server joins deltas; is the answer right where it is not cut so?
                alone = self._without_server(question)
                cut = alone is not None and alone.said.same(whole.said) and streamed.joined
                self._wrong(5 if cut else 4, question, streamed, f"not streamed: {whole.said}")
            self._saw(streamed, 4, 7, 8)
            for wider_asked, wide in wider:
                self._complete(wider_asked, wide)
                if not wide.said.same(streamed.said):
                    self._wrong(5, wider_asked, wide, f"token by token: {streamed.said}")
                if wide.joined:
                    self._saw(wide, 5)
            if self.found.partner is not None and streamed.said.calls:
                self.ledger.saw(self._together)

    async def _choices(self) -> None:
        """Requests that want a call, a tool's, or one at the most, get what they want."""
        for asked, answer, asks in await self._ask(both(self.found.choices)):
            calls = Message(calls=answer.said.calls)
            if not any(calls.same(Message(calls=each.calls)) for each in asks.expected):
                alone = self._without_server(asked)
                if self._forbidden(answer, alone, grammar=asks.grammar):
                    continue
                self._wrong(15, asked, answer, f"{asks.how}, expected {asks.expected[-1]}")
            self._saw(answer, 15)

    def _complete(self, question: Question, answer: Stream) -> None:
        """Look whether a client can put calls together."""
        if answer.stumbles:
            self._wrong(8, question, answer, answer.stumbles[0])
        for call in answer.said.calls:
            if call.arguments and isinstance(call.value, str):
                self._wrong(7, question, answer, "the arguments are no JSON")

    async def _stops(self) -> None:
        """A stop string that never comes changes nothing."""
        rule = self._rule(19)
        stopping = [(attrs.evolve(each, stop=(STOP,)), alone.said) for each, alone in self._alone]
        for question, answer, expected in await self._ask(stopping):
            # Reasoning is the reasoning parser's; what follows on it is handed over, late as well.
            thought = answer.said.reasoning == expected.reasoning
            theirs = bool(expected.reasoning) if self.role == TOOL else thought
            theirs = theirs and self.found.partner is not None
            if STOP not in question.text and not theirs and not answer.said.same(expected):
                told = f"{quoted(question.text)}, {question.how}: {answer.said}"
                self.ledger.advise(rule, f"{told}; without it: {expected}")
            self._saw(answer, 19)

    async def _responses(self) -> None:
        """The same comes through the other endpoint, whose requests and tools are others."""
        # These requests have nowhere to say what a chat template is given.
        plain = [
            (attrs.evolve(question, responses=True), alone.said)
            for question, alone in self._alone
            if not question.template
        ]
        for asked, answer, expected in await self._ask(both(plain[:FEW])):
            rule = 4 if asked.stream else 3
            if answer.said.same(expected):
                self._saw(answer, rule)
                continue
            alone = self._without_server(asked)
            if alone is None or not alone.said.same(expected):  # else it is vLLM's fault
                told = f"{quoted(asked.text)}, {asked.how}: {answer.said}"
                self._fail(1 if alone is None else rule, f"{told}; chat: {expected}")

    async def _crowd(self) -> None:
        """Everybody gets the same among many, and after clients that disconnected."""
        asked = [
            (attrs.evolve(question, interval=interval, stream=stream), expected)
            for stream, interval in ((True, 1), (False, 1), (True, INTERVALS[0]))
            for question, expected in self._alone
        ][:CROWD]
        leaving = [
            (attrs.evolve(question, leaves=len(question.ids) // 2), alone)
            for question, alone in self._alone[:LEAVING]
        ]
        for beside in (asked, leaving, asked[:LEAVING]):
            for question, answer, expected in await self._ask(beside):
                if question.leaves is not None:
                    continue
                if not answer.said.same(expected.said) or answer.stumbles:
                    self._wrong(5, question, answer, f"alone: {expected.said}")
                self._saw(answer, 9)

    async def _faults(self) -> None:
        """Answers that are cut off, and such as make no sense, are answered all the same."""
        cut = [
            (attrs.evolve(question, ends=max(1, len(question.ids) * part // PARTS)), 10)
            for question, _ in self._alone[:FEW]
            for part in range(1, PARTS)
        ]
        malformed = [(question, 11) for question in self.found.malformed]
        for questions in (cut, malformed):
            for asked, answer, number in await self._ask(both(questions)):
                if answer.said.raised is not None:
                    if self._forbidden(answer, self._without_server(asked)):
                        continue
                    told = f"{quoted(asked.text)}, {asked.how}: {answer.said}"
                    self.ledger.advise(self._rule(number), told)
                self.ledger.saw(self._rule(number))
