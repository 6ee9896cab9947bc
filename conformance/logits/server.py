# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the plugin in a live ``vllm serve``.

Two servers of our own start at once: one is given the plugin with ``--logits-processors``;
the other, where possible a fork of this process, finds it as an entry point.
With ``--server-url`` a running server is used instead.
"""

from __future__ import annotations

import asyncio
import math
import tempfile
import time
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
from vllm.v1.sample.logits_processor import LOGITSPROCS_GROUP

from conformance.engine import model_runner
from conformance.engine.entry_points import unlisted
from conformance.engine.environment import chosen_device
from conformance.engine.offline import MAX_MODEL_LEN
from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed, external
from conformance.logits import workload
from conformance.logits.conversation import (
    LIMIT,
    Answer,
    Ask,
    body_of,
    converse,
    curl,
    post,
    post_all,
)
from conformance.logits.ledger import Ledger
from conformance.logits.ways import Reply, Ways, handed_over
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.history import Choice
    from conformance.logits.conversation import Route
    from conformance.logits.parameters import Parameters
    from conformance.logits.requests import Stock
    from conformance.logits.roles import Roles
    from conformance.logits.workload import Job
    from conformance.settings import Settings
    from conformance.target import Plugin
    from conformance.verdict import RuleResult

PROMPTS = ("the quick brown fox", "1 2 3 4", "Once upon a time there was a logit")

START_LIMIT = 240.0

#: Answers that are no longer than this fit into the context of offline engines.
LONGEST_ANSWER = 64

#: A server whose engine was killed notices within some seconds.
DEATH_SECONDS = 10.0


@attrs.define
class Trial:
    """The trial of one plugin in live servers, which start when the trial is opened."""

    roles: Roles
    plugin: Plugin
    parameters: Parameters
    bench: Stock
    model: str
    settings: Settings
    folder: str
    progress: Callable[[str], None] = attrs.field(init=False, default=lambda _: None)
    ledger: Ledger = attrs.field(init=False)
    server: Server | ExternalServer = attrs.field(init=False)
    second: Server | None = attrs.field(init=False, default=None)
    seconds: float = attrs.field(init=False, default=0.0)
    #: Folder that hides an installed entry point of the plugin, if there is one.
    _unlisted: list[Path] = attrs.field(init=False, factory=list)
    _scratch: tempfile.TemporaryDirectory[str] = attrs.field(
        init=False, factory=lambda: tempfile.TemporaryDirectory(prefix="vllm-conformance-")
    )
    _done: bool = attrs.field(init=False, default=False)
    _invariant: bool = attrs.field(init=False, default=False)  #: the plugin's claim
    #: Seconds of a request that is alone, where that is known: so slow is the machine.
    _pace: float = attrs.field(init=False, default=math.inf)

    def __attrs_post_init__(self) -> None:
        """Start the servers in the background."""
        self.ledger = Ledger(self.roles, Evidence.SERVER, self.parameters)
        if self.settings.server_url:
            self.server = external(self.settings.server_url)
            return
        builtin = self.roles.builtin(self.bench.plugin)
        if not builtin:
            self._unlisted = unlisted(Path(self._scratch.name), self.bench.plugin)
        names = () if builtin else (self.plugin.fqcn,)
        self.server = self._start("server.log", logits_processors=names)
        if not builtin:
            group = {LOGITSPROCS_GROUP: {"conformance-target": self.plugin.fqcn}}
            self.second = self._start("server-entry-point.log", entry_points=group, imported=True)

    def close(self) -> None:
        """End the servers."""
        self.server.stop()
        if self.second is not None:
            self.second.stop()
        self._scratch.cleanup()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        ours = isinstance(self.server, Server)
        return {
            "profile": self.parameters.document(),
            "device": self._device() if ours else "as the server's",
            "runner": model_runner.described(self.roles.runner, self._device()) if ours else None,
            "model": "tiny random Llama" if ours else self.server.model_name,
        }

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened on the servers."""
        if not self._done:
            started = time.perf_counter()
            self._run()
            self._done = True
            self.seconds = time.perf_counter() - started
        seconds, self.seconds = self.seconds, 0.0
        return self.ledger.result(rule, seconds)

    def _device(self) -> str:
        return chosen_device(self.settings.device)

    def _start(self, log: str, **loading: Any) -> Server:  # noqa: ANN401 - options of Server.start
        root = self.plugin.root or str(self.settings.directory)
        return Server.start(
            self.model,
            log=Path(self.folder) / log,
            python_path=[*self._unlisted, root, *self.settings.python_path],
            device=self._device(),
            runner=self.roles.runner,
            # A plugin may go by the length of the context: it is then that of offline engines.
            arguments=[f"--max-model-len={MAX_MODEL_LEN}"] if self._as_offline() else [],
            **loading,
        )

    def _as_offline(self) -> bool:
        """Tell whether the servers of our own can do with what offline engines have."""
        parameters = self.bench.parameters.values()
        return all((keywords.get("max_tokens") or 0) <= LONGEST_ANSWER for keywords in parameters)

    def _run(self) -> None:
        self._invariant = self.roles.invariant(self.bench)
        bodies = self._bodies()
        jobs = [job for job in self._questions() if body_of(job.keywords) is not None]
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
        self.progress("waiting for vllm serve to become healthy")
        started = time.perf_counter()
        try:
            self.server.wait_healthy(START_LIMIT if isinstance(self.server, Server) else 10.0)
        except ServerFailed as error:
            if isinstance(self.server, ExternalServer) or isinstance(error, HostTrouble):
                self.ledger.stop(str(error))
            else:
                self.ledger.fail(
                    self.roles.loads, f"with --logits-processors {self.plugin.fqcn}: {error}"
                )
            return
        self.progress(f"vllm serve is healthy after {time.perf_counter() - started:.1f} s")
        self.ledger.saw(self.roles.loads)
        if not any(choice[0] == "on" for choice in bodies):
            self.ledger.blocked = "no `on` request of the profile can be sent over HTTP"
            return
        started = time.perf_counter()
        alone = self._put(self.server, alone_asks, at_once=False)
        if alone is None:
            return
        self._pace = (time.perf_counter() - started) / len(alone_asks)
        self._judge_effect(alone_asks, alone)
        self._judge_together(alone_asks, alone)
        if self.ledger.blocked:
            return
        told = zip(alone_asks, alone, strict=True)
        first = [(ask, answer) for ask, answer in told if ask.prompt == PROMPTS[0]]
        self._judge_ways(jobs, asked, first, by_entry_point)
        self._judge_refusals()
        if death := self._dead():
            self.ledger.fail(self.roles.survives, death)
            return
        self.ledger.saw(self.roles.survives)

    def _questions(self) -> list[Job]:
        """Return what offline engines are asked, too."""
        return workload.questions(self.bench, invariant=self._invariant)

    def _bodies(self) -> dict[Choice, dict[str, Any]]:
        """Return request bodies for the parameter sets that HTTP can carry."""
        bodies: dict[Choice, dict[str, Any]] = {}
        for choice, keywords in self.bench.parameters.items():
            body = body_of(keywords)
            if body is not None:
                # An argmax-invariant plugin shows only where tokens are drawn at random.
                random = (
                    {"temperature": 1.0, "seed": 7} if self._invariant else {"temperature": 0.0}
                )
                bodies[choice] = {**random, **body}
        return bodies

    def _put(
        self, server: Server | ExternalServer, asks: Sequence[Ask], *, at_once: bool
    ) -> list[Answer] | None:
        """Put valid questions; any other answer than 200 ends the trial."""
        name = server.model_name
        answers = asyncio.run(converse(server.url, name, asks, at_once=at_once))
        for ask, answer in zip(asks, answers, strict=True):
            if answer.status == HTTPStatus.OK:
                continue
            if death := self._dead():
                self.ledger.fail(self.roles.raises, f"a valid request ended the server: {death}")
            elif answer.late and self._pace * len(asks) > LIMIT:
                self.ledger.stop(f"this machine is too slow: no answer within {LIMIT:.0f} s")
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

    def _dead(self) -> str | None:
        """Return how the server died, or None; a healthy one costs no waiting."""
        return None if self.server.healthy() else self.server.failure(within=DEATH_SECONDS)

    def _judge_effect(self, asks: Sequence[Ask], answers: Sequence[Answer]) -> None:
        """With the same prompt, tokens differ from those of a request that opts out."""
        plain = self._plain(asks, answers)
        for ask, answer in zip(asks, answers, strict=True):
            if ask.choice[0] == "on":
                other = plain.get((ask.prompt, ask.route))
                if other is not None and answer.same_as != other.same_as:
                    self.ledger.acted.add(ask.choice)

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
        self.ledger.acted |= {ask.choice for ask in asks if ask.choice[0] == "on"}
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
                    f"among {len(many)} requests at once ({how}) {ask.choice[0]}"
                    f"[{ask.choice[1]}] got {answer.text!r}, alone {expected.text!r}; "
                    + curl(self.server.url, self.server.model_name, ask),
                )
                return
            self.ledger.saw(rule)

    def _ask_second(self, asks: Sequence[Ask]) -> list[Answer] | ServerFailed | None:
        """Put questions to the server that finds the plugin by itself, if there is one."""
        if self.second is None:
            return None
        self.progress("waiting for the server that loads the plugin as an entry point")
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
        ways = Ways(self.ledger, sdk, jobs, replies)
        both = Evidence.OFFLINE in self.settings.evidence and self._as_offline()
        if isinstance(self.server, Server) and both and (known := handed_over(jobs, self.folder)):
            ways = Ways(self.ledger, "LLM.generate in an offline engine", jobs, known)
            if not ways.compare(f"{sdk} and vllm serve", [a.tokens for a in through_sdk]):
                return
        over_rest = post_all(url, name, [*asked, *(ask for ask, _ in text)])
        if not self._same(ways, rest, over_rest, text, sdk):
            return
        if isinstance(by_entry_point, HostTrouble):
            self.ledger.stop(f"as a {LOGITSPROCS_GROUP} entry point: {by_entry_point}")
        elif isinstance(by_entry_point, ServerFailed):
            self.ledger.fail(
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
                    f"{ask.choice[0]}[{ask.choice[1]}] got {answer.text!r} ({answer.error}) with "
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
                        death = self._dead()
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
