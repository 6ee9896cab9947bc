# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the plugin in a live ``vllm serve``.

A server of our own is given the plugin with ``--logits-processors`` and imports it by itself, in
an engine that is started as users start it.  Where no offline engine is loaded so, a second one,
where possible a fork of this process, finds it as an entry point.
With ``--server-url`` a running server is used instead.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

import attrs
from vllm.v1.sample.logits_processor import LOGITSPROCS_GROUP

from conformance.engine.entry_points import unlisted
from conformance.engine.model_runner import SYNCHRONOUS_FLAGS
from conformance.engine.offline import MAX_MODEL_LEN
from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed
from conformance.generations import named
from conformance.inputs.history import Choice, label
from conformance.live_trial import SPARED, START_LIMIT
from conformance.logits import workload
from conformance.logits.conversation import (
    LIMIT,
    Answer,
    Ask,
    Route,
    body_of,
    converse,
    curl,
    post,
    post_all,
)
from conformance.logits.fuzzing.live import in_servers
from conformance.logits.live_trial import LogitsTrial, cannot_be_sent
from conformance.logits.ways import Reply, Ways, handed_over
from conformance.logits.workload import Job
from conformance.rules import Evidence

PROMPTS = ("the quick brown fox", "1 2 3 4", "Once upon a time there was a logit")

#: Answers that are no longer than this fit into the context of offline engines.
LONGEST_ANSWER = 64


@attrs.define(eq=False)
class Trial(LogitsTrial):
    """The trial of one plugin in live servers, which start when the trial is opened."""

    second: Server | None = attrs.field(init=False, default=None)
    #: Folder that hides an installed entry point of the plugin, if there is one.
    _unlisted: list[Path] = attrs.field(init=False, factory=list)
    _invariant: bool = attrs.field(init=False, default=False)  #: the plugin's claim
    #: Seconds of a request that is alone, where that is known: so slow is the machine.
    _pace: float = attrs.field(init=False, default=math.inf)

    def __attrs_post_init__(self) -> None:
        """Start the servers in the background."""
        if (running := self.running()) is not None:
            self.serve(running)
            return
        builtin = self.roles.builtin(self.bench.plugin)
        if not builtin:
            folder = self.ends.enter_context(
                tempfile.TemporaryDirectory(prefix="vllm-conformance-")
            )
            self._unlisted = unlisted(Path(folder), self.bench.plugin)
        names = () if builtin else (self.opening.plugin.fqcn,)
        self.serve(self._start("server.log", logits_processors=names, fresh=True))
        if not builtin and not self.shared:
            group = {LOGITSPROCS_GROUP: {"conformance-target": self.opening.plugin.fqcn}}
            self.second = self._start(
                "server-entry-point.log",
                SYNCHRONOUS_FLAGS[self.roles.runner],
                entry_points=group,
                imported=True,
            )
            self.ends.callback(self.second.stop)

    def _start(self, log: str, flags: Sequence[str] = (), **loading: Any) -> Server:  # noqa: ANN401 - options of Server.start
        # A plugin may go by the length of the context: it is then that of offline engines.
        length = [f"--max-model-len={MAX_MODEL_LEN}"] if self._as_offline() else []
        return Server.start(
            self.opening.model,
            log=Path(self.opening.folder) / log,
            python_path=[*self._unlisted, *self.opening.python_path()],
            device=self.device,
            runner=self.roles.runner,
            arguments=[*length, *flags],
            **loading,
        )

    def _as_offline(self) -> bool:
        """Tell whether the servers of our own can do with what offline engines have."""
        parameters = self.bench.parameters.values()
        return all((keywords.get("max_tokens") or 0) <= LONGEST_ANSWER for keywords in parameters)

    def ask(self) -> None:
        """Ask the servers in every way, alone and among many."""
        self._invariant = self.roles.invariant(self.bench)
        explored = self.explored()
        bodies = self._bodies()
        self._note_uncarried(bodies)
        # What offline engines are asked, too.
        questions = workload.questions(self.bench, invariant=self._invariant)
        jobs = [job for job in questions if body_of(job.keywords) is not None]
        asked = [Ask(job.prompt, job.choice, "completions", _body(job)) for job in jobs]
        alone_asks = [
            Ask(prompt, choice, route, body)
            for prompt in PROMPTS
            for choice, body in bodies.items()
            for route in ("completions", "chat")
        ]
        first_asks = [ask for ask in alone_asks if ask.prompt == PROMPTS[0]]
        # The fork is healthy long before the server that imports everything.
        by_entry_point = self._ask_second([*asked, *first_asks])
        how = f"with --logits-processors {self.opening.plugin.fqcn}"
        if not self.healthy(loads=self.roles.loads, how=how):
            return
        self.ledger.saw(self.roles.loads)
        if not _tells(bodies, inert=self.inert):
            return  # the ledger knows that none can be sent
        started = time.perf_counter()
        alone = self._put(self.server, alone_asks, at_once=False)
        if alone is None:
            return
        self._pace = (time.perf_counter() - started) / len(alone_asks)
        self._note_effect(alone_asks, alone)
        self._judge_together(alone_asks, alone)
        if self.ledger.blocked:
            return
        told = zip(alone_asks, alone, strict=True)
        first = [(ask, answer) for ask, answer in told if ask.prompt == PROMPTS[0]]
        self._judge_ways(jobs, asked, first, by_entry_point)
        self._judge_refusals()
        if death := self.death():
            self.ledger.fail(self.roles.survives, death)
            return
        self.ledger.saw(self.roles.survives)
        if self.spared:
            spared = (self.roles.harmless, self.roles.client_error)
            self.ledger.out_of_reach |= dict.fromkeys(spared, SPARED)
        else:
            servers = [self.server, *([self.second] if self.second is not None else [])]
            in_servers(self.ledger, self.roles, servers, explored, bodies)

    def _bodies(self) -> dict[Choice, dict[str, Any]]:
        """Return request bodies for the parameter sets that HTTP can carry."""
        bodies: dict[Choice, dict[str, Any]] = {}
        for choice, keywords in self.bench.parameters.items():
            body = body_of(keywords)
            if body is not None:
                # An argmax-invariant plugin shows only where tokens are drawn at random.
                steady = workload.steady(self.bench, choice, invariant=self._invariant)
                bodies[choice] = {**steady, **body}
        return bodies

    def _note_uncarried(self, bodies: Mapping[Choice, dict[str, Any]]) -> None:
        """Note which parameter sets HTTP cannot carry, and what can be shown of no other."""
        known, roles = self.bench.parameters, self.roles
        invalid = [body_of(keywords) for keywords in self.parameters.invalid]
        self.uncarried = (
            *(choice for choice in known if choice not in bodies),
            *(("invalid", index) for index, body in enumerate(invalid) if body is None),
        )
        beyond = {roles.refuses} if invalid and not any(body for body in invalid) else set()
        if not any(name == "off" for name, _ in bodies):
            beyond.add(roles.opt_out)
        if not _tells(bodies, inert=self.inert):
            # Nothing more is asked, and nothing else is wrong.
            beyond |= {rule.id for rule in named(self.opening.plugin.generation).rules} - {
                roles.loads
            }
        if self.uncarried:
            self.ledger.out_of_reach = dict.fromkeys(beyond, cannot_be_sent(self.uncarried))

    def _put(
        self, server: Server | ExternalServer, asks: Sequence[Ask], *, at_once: bool
    ) -> list[Answer] | None:
        """Put valid questions; any other answer than 200 ends the trial."""
        name = server.model_name
        answers = asyncio.run(converse(server.url, name, asks, at_once=at_once))
        for ask, answer in zip(asks, answers, strict=True):
            if answer.status == HTTPStatus.OK:
                continue
            if death := self.death():
                self.ledger.fail(self.roles.raises, f"a valid request ended the server: {death}")
            elif answer.late and self._pace * len(asks) > LIMIT:
                self.ledger.stop(f"this machine is too slow: no answer within {LIMIT:.0f} s")
            elif answer.broken:
                self.ledger.stop(f"the server goes on, and a connection broke: {answer.error}")
            else:
                self.ledger.fail(
                    self.roles.refuses
                    if answer.status == HTTPStatus.BAD_REQUEST
                    else self.roles.raises,
                    f"a valid request got status {answer.status}: {answer.error}; "
                    + curl(server.url, name, ask),
                )
            return None
        self.ledger.saw(self.roles.raises, len(asks))
        return answers

    def _note_effect(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """With the same prompt, tokens differ from those of a request that opts out."""
        plain = self._plain(asks, answers)
        for ask, answer in zip(asks, answers, strict=True):
            if ask.choice[0] == "on":
                other = plain.get((ask.prompt, ask.route))
                if other is not None and answer.same_as != other.same_as:
                    self.acted.add(ask.choice)

    def _plain(
        self, asks: Sequence[Ask], answers: Sequence[Answer]
    ) -> dict[tuple[object, Route], Answer]:
        """Return the answers to requests that opt out."""
        found: dict[tuple[object, Route], Answer] = {
            (ask.prompt, ask.route): answer
            for ask, answer in zip(asks, answers, strict=True)
            if ask.choice[0] == "off"
        }
        if found or not self.parameters.on:
            return found
        # A plugin without an opt-in acts on these too: its effect shows offline only.
        self.acted |= {ask.choice for ask in asks if ask.choice[0] == "on"}
        return found

    def _judge_together(self, asks: Sequence[Ask], alone: Sequence[Answer]) -> None:
        """The same answers when everybody asks at once, streaming or not."""
        many = [attrs.evolve(ask, stream=stream) for stream in (False, True) for ask in asks]
        answers = self._put(self.server, many, at_once=True)
        if answers is None:
            return
        for index, (ask, answer) in enumerate(zip(many, answers, strict=True)):
            expected = alone[index % len(asks)]
            rule = self.roles.alone if ask.choice[0] == "on" else self.roles.opt_out
            if answer.same_as != expected.same_as:
                how = "streaming" if ask.stream else "not streaming"
                self.ledger.fail(
                    rule,
                    f"among {len(many)} requests at once ({how}) {label(ask.choice)} "
                    f"got {answer.text!r}, alone {expected.text!r}; "
                    + curl(self.server.url, self.server.model_name, ask),
                )
                return
            self.ledger.saw(rule)

    def _ask_second(self, asks: Sequence[Ask]) -> list[Answer] | ServerFailed | None:
        """Put questions to the server that finds the plugin by itself, if there is one."""
        if self.second is None:
            return None
        self.opening.progress("waiting for the server that loads the plugin as an entry point")
        try:
            self.second.wait_healthy(START_LIMIT)
        except ServerFailed as error:
            return error
        name = self.second.model_name
        return asyncio.run(converse(self.second.url, name, asks, at_once=True))

    def _judge_ways(
        self,
        jobs: list[Job],
        asked: list[Ask],
        text: list[tuple[Ask, Answer]],
        by_entry_point: list[Answer] | ServerFailed | None,
    ) -> None:
        """The same tokens offline, through the SDK, over REST, and from an entry point."""
        through_sdk = self._put(self.server, asked, at_once=True)
        if through_sdk is None:
            return
        url, name = self.server.url, self.server.model_name
        sdk, rest = "the OpenAI SDK", "plain REST"
        replies = [Reply(answer.tokens, len(answer.tokens)) for answer in through_sdk]
        ways = Ways(self.ledger, self.roles.same, sdk, jobs, replies)
        both = Evidence.OFFLINE in self.opening.settings.evidence and self._as_offline()
        if self.own and both and (known := handed_over(jobs, self.opening.folder)):
            ways = attrs.evolve(ways, reference="LLM.generate in an offline engine", replies=known)
            if not ways.compare(f"{sdk} and vllm serve", [a.tokens for a in through_sdk]):
                return
        over_rest = post_all(url, name, [*asked, *(ask for ask, _ in text)])
        if not self._same(ways, rest, over_rest, text, sdk):
            return
        if isinstance(by_entry_point, HostTrouble):
            self.ledger.stop(f"as a {LOGITSPROCS_GROUP} entry point: {by_entry_point}")
        elif isinstance(by_entry_point, ServerFailed):
            self.ledger.did_not_start(
                self.roles.loads, f"as a {LOGITSPROCS_GROUP} entry point: {by_entry_point}"
            )
        elif by_entry_point is not None:
            self.ledger.saw(self.roles.loads)
            way = f"vllm serve and a {LOGITSPROCS_GROUP} entry point"
            self._same(ways, way, by_entry_point, text, "--logits-processors")

    def _same(
        self,
        ways: Ways,
        way: str,
        answers: list[Answer],
        text: list[tuple[Ask, Answer]],
        usual: str,
    ) -> bool:
        """Compare answers to the questions of ``ways``, and after them to those about text."""
        split = len(ways.jobs)
        for job, answer in zip(ways.jobs, answers, strict=False):
            if answer.late:
                self.ledger.stop(f"{way}: no answer within {LIMIT:.0f} s")
                return False
            if answer.error is not None:
                self.ledger.fail(self.roles.same, f"{job.label} got {answer.error} with {way}")
                return False
        if not ways.compare(way, [answer.tokens for answer in answers[:split]]):
            return False
        for (ask, wanted), answer in zip(text, answers[split:], strict=True):
            if answer.same_as != wanted.same_as:
                self.ledger.fail(
                    self.roles.same,
                    f"{label(ask.choice)} got {answer.text!r} ({answer.error}) with "
                    f"{way}, {wanted.text!r} with {usual}; "
                    + curl(self.server.url, self.server.model_name, ask),
                )
                return False
            self.ledger.saw(self.roles.same)
        return True

    def _judge_refusals(self) -> None:
        """Refused requests get 400, and the server stays healthy."""
        name = self.server.model_name
        for index, keywords in enumerate(self.parameters.invalid):
            body = body_of(keywords)
            if body is None:
                continue
            for route in ("completions", "chat"):
                ask = Ask(PROMPTS[0], ("on", index), route, body)
                (sdk,) = asyncio.run(converse(self.server.url, name, [ask], at_once=False))
                for answer in (sdk, post(self.server.url, name, ask)):
                    if answer.status != HTTPStatus.BAD_REQUEST:
                        death = self.death()
                        self.ledger.fail(
                            self.roles.refuses,
                            f"invalid[{index}] = {keywords} got status {answer.status}, not 400"
                            + (f", and {death}" if death else "")
                            + "; "
                            + curl(self.server.url, name, ask),
                        )
                        return
                self.ledger.saw(self.roles.refuses)
        if self.parameters.invalid and not self.server.healthy():
            self.ledger.fail(self.roles.refuses, "the server is not healthy after refused requests")


def _body(job: Job) -> dict[str, Any]:
    body = body_of(job.keywords)
    assert body is not None  # those that do not fit are not asked
    return body


def _tells(bodies: Iterable[Choice], *, inert: bool) -> bool:
    """Tell whether requests that can be sent tell something about the plugin."""
    return any(inert or name == "on" for name, _ in bodies)
