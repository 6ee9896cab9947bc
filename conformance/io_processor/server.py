# SPDX-License-Identifier: Apache-2.0
"""Evidence ``server``: the plugin behind ``POST /pooling`` of a live ``vllm serve``.

A server of our own works on one prompt at a time, so that what it computes does not depend on what
else it is asked: answers of crowds must then equal answers to single requests.
With ``--server-url`` a running server is used instead, which must serve the plugin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import attrs

from conformance.engine.entry_points import TRIED
from conformance.engine.pooling import server_options
from conformance.engine.server import ExternalServer, HostTrouble, Server, ServerFailed
from conformance.io_processor import clients, hostile, live, rehearsal
from conformance.io_processor.answers import Answer, Kind
from conformance.io_processor.calling import entry_module
from conformance.io_processor.clients import Client, curl
from conformance.io_processor.live import IOProcessorTrial
from conformance.live_trial import SPARED, START_LIMIT
from conformance.plugin.target import IO_PROCESSORS
from conformance.watching.comparison import difference, shortened

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


@attrs.define(eq=False)
class Trial(IOProcessorTrial):
    """The trial of one plugin in a live server, which starts when the trial is opened."""

    host: ClassVar[str] = "POST /pooling"

    #: Where hooks are awaited, one whose outputs do not arrive in the order of the prompts.
    second: Server | None = attrs.field(init=False, default=None)
    #: What each valid request is answered when nobody else asks.
    _alone: list[Answer] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        """Start the server, and find out meanwhile what the plugin is tried with."""
        url = self.opening.settings.server_url
        self.ledger.blocked = None if url else self.refused()
        if self.ledger.blocked is None:
            # A fork of this process, which has not touched the plugin yet.
            self.serve(self.running() or self._start("server.log", ONE_AT_A_TIME))
            if not rehearsal.awaits_hooks():
                self.ledger.beside[live.ORDER] = "this vLLM awaits no hooks"
            elif not url:
                self.second = self._start("server-out-of-order.log", OUT_OF_ORDER)
                self.ends.callback(self.second.stop)
            self.prepare()

    def _start(self, log: str, arguments: Sequence[str]) -> Server:
        folder = Path(self.opening.folder)
        module = entry_module(folder / "entry", self.opening.qualname)
        return Server.start(
            self.model,
            log=folder / log,
            python_path=[folder / "entry", *self.opening.python_path()],
            entry_points={IO_PROCESSORS: {TRIED: f"{module}:qualname"}},
            device=self.device,
            arguments=[
                "--runner=pooling",
                *server_options(self.model, self.length),
                f"--io-processor-plugin={TRIED}",
                *arguments,
                *self.opening.settings.server_arguments,
            ],
            imported=True,
        )

    def run(self) -> None:
        """Ask the server in every way, alone and among many."""
        explored = hostile.Explored() if self.spared else self.explored()
        if not self.healthy(loads=live.LOADS, how="with --io-processor-plugin"):
            return
        self.ledger.saw(live.LOADS)
        client = Client(self.server.url, self.server.model_name)
        for judge in (self._answered, self._refused, self._order, self._crowds, self._harmless):
            judge(client)
            if self.ledger.blocked is not None:
                return
        if death := self.death():
            self.ledger.fail(live.SURVIVES, death)
            return
        self.ledger.saw(live.SURVIVES)
        if self.spared:
            self.ledger.out_of_reach[hostile.ENDURES] = SPARED
        else:
            hostile.in_server(
                self.ledger,
                self.server,
                client,
                explored,
                valid=self._valid,
                mixed=self._mixed,
            )

    @property
    def _valid(self) -> Sequence[Any]:
        stock = self.bench.stock
        return stock.originals if self.spared else stock.valid

    def _answered(self, client: Client) -> None:
        """Valid requests are answered, and the same by the OpenAI client and over plain REST."""
        for index, data in enumerate(self._valid):
            answers = [clients.through_sdk(client, data), clients.over_rest(client, data)]
            for answer in answers:
                if answer.kind is not Kind.ANSWERED:
                    if "Unsupported task" in answer.error:  # of vLLM, about any model
                        self.ledger.blocked = (
                            f"the model of the server has no pooler for it: {answer.error}"
                        )
                        return
                    death = self.death()
                    # What became of a variation in the simulator was made up: a real model may
                    # refuse it, but no request may end its engine.
                    varied = index >= self.bench.stock.given
                    if varied and not death and not answer.late:
                        continue
                    ends = hostile.ENDURES if varied else live.SURVIVES
                    told = f"{self.bench.stock.called(index)} {_ended(answer, death)}"
                    rule = ends if death else live.ANSWERS
                    self.ledger.fail(rule, f"{told}; {curl(client, data)}")
                    return
            if what := self._different(answers[1], answers[0]):
                # Where hooks are awaited, outputs come in whatever order they are noticed.
                several = self.bench.stock.prompts[index] > 1
                rule = live.ORDER if several and rehearsal.awaits_hooks() else live.ANSWERS
                self.ledger.fail(rule, f"asked again, {shortened(data)} was answered {what}")
                return
            self._alone.append(answers[0])
            if answers[0].kind is Kind.ANSWERED:
                self.ledger.saw(live.ANSWERS, 2)
        if all(answer.data is None for answer in self._alone):
            self.ledger.fail(live.ANSWERS, "every valid request was answered with nothing")

    def _different(self, got: Answer, wanted: Answer) -> str | None:
        if got.kind is not wanted.kind:
            return got.describe()
        return difference(got.data, wanted.data, self.bench.hidden)

    def _refused(self, client: Client) -> None:
        """Invalid requests get no answer, and the server stays healthy."""
        for data in self.bench.stock.invalid:
            for answer in (clients.through_sdk(client, data), clients.over_rest(client, data)):
                death = self.death()
                if answer.kind not in (Kind.REFUSED, Kind.FAILED) or death:
                    told = f"the invalid request {shortened(data)} {_ended(answer, death)}"
                    self.ledger.fail(live.REFUSES, f"{told}; {curl(client, data)}")
                    return
            self.ledger.saw(live.REFUSES, 2)

    def _order(self, client: Client) -> None:
        """Outputs that arrive in another order than their prompts are answered the same."""
        if self.second is None:
            return
        several = self.bench.stock.several()
        if not several:
            self.ledger.beside[live.ORDER] = "every valid request that was tried became one prompt"
            return
        self.opening.progress("waiting for a server that works on several prompts at once")
        try:
            self.second.wait_healthy(START_LIMIT)
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
        count = self.opening.settings.crowd or CROWD
        for rule, same, what in (
            (live.INTERLEAVED, False, "at once"),
            (live.SAME_IDS, True, "at once with the same X-Request-Id"),
        ):
            wanted = [index % len(self._valid) for index in range(count)]
            asked = [
                (self._valid[index], "same" if same else f"id-{place}")
                for place, index in enumerate(wanted)
            ]
            answers = asyncio.run(clients.crowd(client, asked))
            for index, answer in zip(wanted, answers, strict=True):
                if same and answer.kind is Kind.REFUSED:
                    continue  # another one has the id
                if why := self._mixed(answer, index):
                    self.ledger.fail(
                        rule,
                        f"among {count} requests {what} {shortened(self._valid[index])} {why}; "
                        + curl(client, self._valid[index]),
                    )
                    return
            self.ledger.saw(rule, sum(answer.kind is Kind.ANSWERED for answer in answers))

    def _mixed(self, answer: Answer, index: int) -> str | None:
        """Say in what an answer among many differs from the one alone."""
        alone = self._alone[index]
        what = self._different(answer, alone)
        if what is None:
            return None
        if isinstance(self.server, ExternalServer) and answer.kind is Kind.ANSWERED:
            # It computes many at a time, and rounds otherwise: only another's answer is wrong.
            others = [a for place, a in enumerate(self._alone) if place != index]
            if not any(self._different(answer, other) is None for other in others):
                return None
        return f"was answered {what}" if answer.kind is alone.kind else what

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
        if death := self.death():
            self.ledger.fail(live.SURVIVES, death)
            return
        self.ledger.saw(live.HARMLESS, len(self._valid))


def _ended(answer: Answer, death: str | None) -> str:
    """Say how a request ended, and what became of the server."""
    return f"{answer.describe()}, and {death}" if death else answer.describe()
