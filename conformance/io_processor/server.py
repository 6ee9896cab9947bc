# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the plugin behind ``POST /pooling`` of a live ``vllm serve``.

A server of our own works on one prompt at a time, so that what it computes does not depend on what
else it is asked: answers of crowds must then equal answers to single requests.
With ``--server-url`` a running server is used instead, which must serve the plugin.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import vllm

from conformance.comparison import difference, shortened
from conformance.engine import serving
from conformance.engine.entry_points import IO_PROCESSORS
from conformance.engine.pooling import BLOCKS, MAX_MODEL_LEN
from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed, external
from conformance.io_processor import clients, live, rehearsal
from conformance.io_processor.answers import Kind
from conformance.io_processor.calling import NAME, entry_module
from conformance.io_processor.clients import Client, curl
from conformance.ledger import Ledger
from conformance.rules import Evidence

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from conformance.io_processor.answers import Answer
    from conformance.io_processor.live import Subject
    from conformance.verdict import RuleResult

#: What of the server a plugin is reached by, as certificates have it.
HOST = "POST /pooling"

#: Outputs in the order of the prompts, each computed by itself.
ONE_AT_A_TIME = ("--max-num-seqs=1",)

#: Few tokens of a prompt in a step: what is short overtakes what is long.
OUT_OF_ORDER = (
    "--max-num-seqs=8",
    "--max-num-batched-tokens=32",
    "--enable-chunked-prefill",
    "--long-prefill-token-threshold=4",
)

#: Requests that are made at the same time.
CROWD = 30

#: Clients that disconnect.
LEAVING = 6


@attrs.define
class Trial:
    """The trial of one plugin in a live server, which starts when the trial is opened."""

    subject: Subject
    ledger: Ledger = attrs.field(init=False)
    server: Server | ExternalServer | None = attrs.field(init=False, default=None)
    #: Where hooks are awaited, one whose outputs do not arrive in the order of the prompts.
    second: Server | None = attrs.field(init=False, default=None)
    progress: Callable[[str], None] = attrs.field(init=False, default=lambda _: None)
    _done: bool = attrs.field(init=False, default=False)
    #: What each valid request is answered when nobody else asks.
    _alone: list[Answer] = attrs.field(init=False, factory=list)

    @classmethod
    def open(cls, *arguments: Any) -> Trial:  # noqa: ANN401 - those of live.Subject
        """Open the trial, and start the server in the background."""
        return cls(live.Subject(*arguments))

    def __attrs_post_init__(self) -> None:
        """Start the server, and find out meanwhile what the plugin is tried with."""
        url = self.subject.settings.server_url
        why = None if url else live.refused(self.subject)
        self.ledger = Ledger(Evidence.SERVER, blocked=why)
        if self.ledger.blocked is None:
            # A fork of this process, which has not touched the plugin yet.
            self.server = external(url) if url else self._start("server.log", ONE_AT_A_TIME)
            if not rehearsal.awaits_hooks():
                self.ledger.beside[live.ORDER] = "this vLLM awaits no hooks"
            elif not url:
                self.second = self._start("server-out-of-order.log", OUT_OF_ORDER)
            live.prepare(self.subject, self.ledger)

    def _start(self, log: str, arguments: Sequence[str]) -> Server:
        folder = Path(self.subject.folder)
        module = entry_module(folder / "entry", self.subject.qualname)
        return Server.start(
            self.subject.model,
            log=folder / log,
            python_path=[folder / "entry", *self.subject.python_path()],
            entry_points={IO_PROCESSORS: {NAME: f"{module}:qualname"}},
            device=self.subject.device,
            arguments=[
                "--runner=pooling",
                f"--io-processor-plugin={NAME}",
                *arguments,
                f"--num-gpu-blocks-override={BLOCKS}",
                f"--max-model-len={MAX_MODEL_LEN}",
            ],
            imported=True,
        )

    def close(self) -> None:
        """End the server."""
        for server in (self.server, self.second):
            if server is not None:
                server.stop()

    def context(self) -> dict[str, Any]:
        """Return what a certificate says about this trial."""
        host = f"{HOST} of vllm serve {vllm.__version__}"
        told = live.context(self.subject, Evidence.SERVER, host)
        return told | serving.context(self.server, HOST)

    def check(self, rule: str) -> RuleResult:
        """Judge one rule by what happened on the server."""
        if not self._done and self.server is not None and self.ledger.blocked is None:
            with self.ledger.timed():
                self._run(self.server)
        self._done = True
        return self.ledger.result(rule)

    def _run(self, server: Server | ExternalServer) -> None:
        how = "with --io-processor-plugin"
        if not serving.healthy(server, self.ledger, self.progress, loads=live.LOADS, how=how):
            return
        self.ledger.saw(live.LOADS)
        client = Client(server.url, server.model_name)
        for judge in (self._answered, self._refused, self._order, self._crowds, self._harmless):
            judge(client)
            if self.ledger.blocked is not None:
                return
        if death := serving.death(self.server):
            self.ledger.fail(live.SURVIVES, death)
            return
        self.ledger.saw(live.SURVIVES)

    @property
    def _valid(self) -> Sequence[Any]:
        return self.subject.bench.stock.valid

    def _answered(self, client: Client) -> None:
        """Valid requests are answered, and the same by the OpenAI client and over plain REST."""
        for index, data in enumerate(self._valid):
            answers = [clients.through_sdk(client, data), clients.over_rest(client, data)]
            for answer in answers:
                if answer.kind is not Kind.ANSWERED:
                    if "Unsupported task" in answer.error:
                        self.ledger.blocked = f"the model has no pooler for it: {answer.error}"
                        return
                    death = serving.death(self.server)
                    self.ledger.fail(
                        live.SURVIVES if death else live.ANSWERS,
                        f"the valid request {shortened(data)} {answer.describe()}"
                        + (f", and {death}" if death else "")
                        + f"; {curl(client, data)}",
                    )
                    return
            if what := self._different(answers[1], answers[0]):
                # Where hooks are awaited, outputs come in whatever order they are noticed.
                several = self.subject.bench.stock.prompts[index] > 1
                rule = live.ORDER if several and rehearsal.awaits_hooks() else live.ANSWERS
                self.ledger.fail(rule, f"asked again, {shortened(data)} was answered {what}")
                return
            self._alone.append(answers[0])
            self.ledger.saw(live.ANSWERS, 2)

    def _different(self, got: Answer, wanted: Answer) -> str | None:
        if got.kind is not wanted.kind:
            return got.describe()
        return difference(got.data, wanted.data, self.subject.bench.hidden)

    def _refused(self, client: Client) -> None:
        """Invalid requests get a status of 400 to 499, and the server stays healthy."""
        for data in self.subject.bench.stock.invalid:
            for answer in (clients.through_sdk(client, data), clients.over_rest(client, data)):
                if answer.kind is not Kind.REFUSED:
                    death = serving.death(self.server)
                    self.ledger.fail(
                        live.REFUSES,
                        f"the invalid request {shortened(data)} {answer.describe()}"
                        + (f", and {death}" if death else "")
                        + f"; {curl(client, data)}",
                    )
                    return
            self.ledger.saw(live.REFUSES, 2)

    def _order(self, client: Client) -> None:
        """Outputs that arrive in another order than their prompts are answered the same."""
        if self.second is None:
            return
        several = self.subject.bench.stock.several()
        if not several:
            self.ledger.beside[live.ORDER] = "every valid request that was tried became one prompt"
            return
        self.progress("waiting for a server that works on several prompts at once")
        try:
            self.second.wait_healthy(serving.START_LIMIT)
        except HostTrouble as error:
            self.ledger.stop(str(error))
            return
        except ServerFailed as error:
            self.ledger.fault = f"the second server: {error}"
            return
        other = Client(self.second.url, self.second.model_name)
        for index in several:
            data = self._valid[index]
            answer = clients.over_rest(other, data)
            if what := self._different(answer, self._alone[index]):
                self.ledger.fail(
                    live.ORDER,
                    f"from a server that works on several prompts at once {shortened(data)} got "
                    f"{what} (one at a time); {curl(client, data)}",
                )
                return
            self.ledger.saw(live.ORDER)

    def _crowds(self, client: Client) -> None:
        """Everybody gets the same among many, with ids of their own and with the same id."""
        for rule, same, what in (
            (live.INTERLEAVED, False, "at once"),
            (live.SAME_IDS, True, "at once with the same X-Request-Id"),
        ):
            wanted = [index % len(self._valid) for index in range(CROWD)]
            asked = [
                (self._valid[index], "same" if same else f"id-{place}")
                for place, index in enumerate(wanted)
            ]
            answers = asyncio.run(clients.crowd(client, asked))
            for index, answer in zip(wanted, answers, strict=True):
                if why := self._mixed(answer, index):
                    self.ledger.fail(
                        rule,
                        f"among {CROWD} requests {what} {shortened(self._valid[index])} {why}; "
                        + curl(client, self._valid[index]),
                    )
                    return
            self.ledger.saw(rule, CROWD)

    def _mixed(self, answer: Answer, index: int) -> str | None:
        """Say in what an answer among many differs from the one alone."""
        what = self._different(answer, self._alone[index])
        if what is None:
            return None
        if isinstance(self.server, ExternalServer) and answer.kind is Kind.ANSWERED:
            # It computes many at a time, and rounds otherwise: only another's answer is wrong.
            others = [a for place, a in enumerate(self._alone) if place != index]
            if not any(self._different(answer, other) is None for other in others):
                return None
        return what if what.startswith(("ended", "was")) else f"was answered {what}"

    def _harmless(self, client: Client) -> None:
        """After refused requests and clients that disconnected, everybody gets the same."""
        data = self._valid[-1]
        asyncio.run(clients.leave(client, [data] * LEAVING))
        for index, valid in enumerate(self._valid):
            answer = clients.over_rest(client, valid)
            if why := self._mixed(answer, index):
                self.ledger.fail(
                    live.HARMLESS,
                    f"after {LEAVING} clients had disconnected, {shortened(valid)} {why}; "
                    + curl(client, valid),
                )
                return
        if death := serving.death(self.server):
            self.ledger.fail(live.SURVIVES, death)
            return
        self.ledger.saw(live.HARMLESS, len(self._valid))
