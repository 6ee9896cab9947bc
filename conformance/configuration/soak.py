# SPDX-License-Identifier: Apache-2.0
"""A job: one server under a mixed load for minutes, its answers, and what grows meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from multiprocessing.connection import Connection
from pathlib import Path

import attrs
import httpx
import openai
import psutil

from conformance.configuration import served
from conformance.configuration.asked import Answers, Workload
from conformance.configuration.record import Look, Record
from conformance.engine import access
from conformance.engine.server import Server, ServerFailed
from conformance.logits.conversation import LIMIT
from conformance.logits.ways import difference
from conformance.plugin.target import Plugin
from conformance.settings import Settings

#: Of a hundred requests, how many clients leave, and how many are invalid.
LEAVE, INVALID = 10, 10

#: Looks at the processes, and seconds between two at least.
LOOKS, APART = 200, 0.5


def run(
    connection: Connection,
    *,
    plugin: Plugin,
    settings: Settings,
    model: str,
    workload: Workload,
    plain: tuple[Answers, Answers],
    seconds: float,
    clients: int,
    loaded: str,
) -> None:
    """Answer with the record of a server that ``clients`` ask for so many seconds."""
    log = Path(connection.recv()) / "soak-server.log"
    with served.start(plugin, settings, model, log=log, arguments=(), loaded=loaded) as server:
        try:
            server.wait_healthy(served.START_LIMIT)
        except ServerFailed as error:
            connection.send(Record(problem=str(error)))
            return
        load = _Load(server, workload, plain, seconds, settings.seed)
        record = asyncio.run(load.run(clients))
        ended = None if server.healthy() else server.failure(within=10.0)
    connection.send(attrs.evolve(record, problem=ended))


@attrs.define
class _Load:
    server: Server
    workload: Workload
    plain: tuple[Answers, Answers]
    seconds: float
    seed: int
    sent: int = 0
    outcomes: Counter[str] = attrs.field(factory=Counter)
    wrong: list[str] = attrs.field(factory=list)
    latencies: list[tuple[float, float]] = attrs.field(factory=list)
    looks: list[Look] = attrs.field(factory=list)
    _began: float = attrs.field(factory=time.monotonic)

    async def run(self, clients: int) -> Record:
        """Have clients ask until the time is over, and everything that was sent is answered."""
        watching = asyncio.create_task(self._watch())
        async with access.sdk(self.server.url, LIMIT + clients) as sdk:
            await asyncio.gather(*(self._client(sdk, number) for number in range(clients)))
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        return Record(
            sent=self.sent,
            outcomes=dict(self.outcomes),
            wrong=tuple(self.wrong),
            latencies=tuple(self.latencies),
            looks=tuple(self.looks),
        )

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _client(self, sdk: openai.AsyncOpenAI, number: int) -> None:
        """Ask one thing after the other, as one client of many."""
        chance = random.Random(f"{self.seed} {number}")
        carried = served.carriable(self.workload)
        asks = [number for number, (ask, _) in carried.items() if not ask.aborted]
        while self._now() < self.seconds and self.server.alive():
            chosen = chance.choice(asks)
            ask, body = carried[chosen]
            dice = chance.randrange(100)
            self.sent += 1
            began = self._now()
            try:
                if dice < INVALID:
                    await served.asked(sdk, self.server.model_name, ask, {**body, "n": -1})
                    self.wrong.append("an invalid request was answered")
                elif dice < INVALID + LEAVE:
                    leaves = attrs.evolve(ask, aborted=True)
                    await served.asked(sdk, self.server.model_name, leaves, body)
                    self.outcomes["left"] += 1
                else:
                    tokens = await served.asked(sdk, self.server.model_name, ask, body)
                    self.latencies.append((self._now(), self._now() - began))
                    self.outcomes["answered"] += 1
                    self._compare(chosen, tokens)
            except openai.BadRequestError as error:
                self._refused(error, expected=dice < INVALID)
            except (openai.APIError, httpx.HTTPError) as error:
                self.wrong.append(f"{ask.label} got no answer: {type(error).__name__}: {error}")
                await asyncio.sleep(APART)

    def _refused(self, error: Exception, *, expected: bool) -> None:
        if expected:
            self.outcomes["refused"] += 1
        else:
            self.wrong.append(f"a valid request was refused: {error}")

    def _compare(self, number: int, tokens: tuple[int, ...]) -> None:
        ask = self.workload.asks[number]
        reply = self.plain[0 if ask.on else 1].replies[number]
        if problem := difference(reply, tokens, "in the plain engine"):
            self.wrong.append(f"{ask.label} (request {number}) got other tokens: {problem}")

    async def _watch(self) -> None:
        first = psutil.Process(self.server.pid)
        while True:
            with contextlib.suppress(psutil.Error):  # it has ended
                for process in (first, *first.children(recursive=True)):
                    with contextlib.suppress(psutil.Error):  # it has ended meanwhile
                        memory, handles = process.memory_info().rss, process.num_fds()
                        name = f"{process.name()} {process.pid}"
                        self.looks.append(Look(self._now(), name, memory, handles))
            await asyncio.sleep(max(APART, self.seconds / LOOKS))
