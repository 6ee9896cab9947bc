# SPDX-License-Identifier: Apache-2.0
"""A job: a server of one configuration, and what its clients get of a workload."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import attrs
import openai

from conformance.configuration import idle
from conformance.configuration.asked import IDLE, TESTED, Answers, Ask, Workload
from conformance.configuration.engine import said
from conformance.configuration.table import Configuration
from conformance.engine import access
from conformance.engine.environment import chosen_device
from conformance.engine.front_ends import FrontEnds
from conformance.engine.offline import MAX_MODEL_LEN
from conformance.engine.server import Server, ServerFailed
from conformance.engine.server_log import cause, read_log
from conformance.generations import named as generation_named
from conformance.logits.conversation import LIMIT, body_of
from conformance.plugin.target import Plugin
from conformance.settings import Settings
from conformance.worker.installed import suite_of
from conformance.worker.jobs import deployed

#: Seconds in which a server on a tiny model becomes healthy, though each of several processes
#: imports vLLM.
START_LIMIT = 300.0

#: Seconds between two requests, in turn: a front end takes all connections that wait when it
#: looks, and one that is busy with the last leaves the next to another.
APART = (0.001, 0.004, 0.02)

#: Times that the workload is sent until each front end has had some of it; two at least, since a
#: plugin that keeps something answers otherwise the second time.
MOST_PASSES = 8

#: The requests that HTTP can carry by their numbers, each with the fields of its body.
Carried = Mapping[int, tuple[Ask, Mapping[str, Any]]]

#: Tokens after which an impatient client disconnects.
LEAVES_AFTER = 3

#: Seconds for which an engine is held while many clients begin, at most.
HELD = 30.0

#: Seconds in which the last request goes from the front end to the engine.
HANDED_OVER = 0.5


def serve(
    connection: Connection,
    *,
    plugin: Plugin,
    settings: Settings,
    model: str,
    configuration: Configuration,
    workload: Workload,
    loaded: str,
) -> None:
    """Answer with what the server answers; ``loaded`` says what it is started with."""
    folder = Path(connection.recv())
    started = time.monotonic()
    carried = carriable(workload)
    if not any(ask.on and not ask.aborted for ask, _ in carried.values()) and plugin.module:
        connection.send(Answers(absent="HTTP carries none of the requests that opt in"))
        return
    log = folder / f"configuration-{configuration.name}-server.log"
    arguments = [*configuration.served(folder)]
    if configuration.clients:  # in one batch
        arguments.append(f"--max-num-seqs={configuration.clients}")
    held = bool(configuration.clients)
    with start(
        plugin, settings, model, log=log, arguments=arguments, loaded=loaded, held=held
    ) as server:
        answers = _answers(server, configuration, carried)
    connection.send(attrs.evolve(answers, seconds=time.monotonic() - started))


def carriable(workload: Workload) -> Carried:
    """Return those requests of a workload that HTTP can carry."""
    return {
        number: (ask, {**body, "return_token_ids": True})
        for number, ask in enumerate(workload.asks)
        if (body := body_of(ask.keywords)) is not None
    }


def start(
    plugin: Plugin,
    settings: Settings,
    model: str,
    *,
    log: Path,
    arguments: Sequence[str],
    loaded: str,
    held: bool = False,
) -> Server:
    """Start a server with what ``loaded`` names; returns at once.

    ``held`` says that its engine can be paused.
    """
    return Server.start(
        deployed(plugin, settings) or model,
        log=log,
        logits_processors=_names(plugin, loaded),
        python_path=settings.import_path(plugin.root),
        device=chosen_device(settings.device),
        arguments=[f"--max-model-len={MAX_MODEL_LEN}", *arguments],
        imported=True,
        runner=suite_of(generation_named(plugin.generation)).runner or "v1",
        environment={"VLLM_SERVER_DEV_MODE": "1"} if held else None,
    )


def _answers(server: Server, configuration: Configuration, carried: Carried) -> Answers:
    try:
        server.wait_healthy(START_LIMIT)
    except ServerFailed as error:
        return Answers(problem=cause(read_log(server.log)) or str(error))
    try:
        passes, front_ends = asyncio.run(_passes(server, configuration, carried))
    except Exception as error:  # noqa: BLE001 - whatever a client gets instead of tokens
        return Answers(started=True, problem=server.failure(within=10.0) or said(error))
    if front_ends < configuration.front_ends:
        return Answers(started=True, absent="one front end took every request")
    return Answers(passes=passes, started=True)


def _names(plugin: Plugin, loaded: str) -> tuple[str, ...]:
    """Return what ``--logits-processors`` names."""
    if loaded == TESTED:
        return (plugin.fqcn,)
    return (idle.name(plugin.generation),) if loaded == IDLE else ()


async def _passes(
    server: Server, configuration: Configuration, carried: Carried
) -> tuple[tuple[dict[int, tuple[int, ...]], ...], int]:
    """Send everything, and again; return the tokens, and how many front ends had requests."""
    passes: list[dict[int, tuple[int, ...]]] = []
    front_ends = FrontEnds(server, {server.pid} if configuration.front_ends == 1 else set())
    numbers = sorted(carried, key=lambda number: carried[number][0].late)
    copies = max(1, math.ceil(configuration.clients / len(numbers)))
    for times in range(1, MOST_PASSES + 1):
        # Whoever is one of many waits for its turn.
        begun = asyncio.Semaphore(0)
        running = []
        async with access.sdk(server.url, LIMIT * copies) as sdk:
            held = _held(server, begun, len(numbers) * copies)
            async with held if copies > 1 else contextlib.nullcontext():
                for number in numbers * copies:
                    put = asked(sdk, server.model_name, *carried[number], begun)
                    running.append(asyncio.create_task(put))
                    await asyncio.sleep(0.0 if copies > 1 else APART[number % len(APART)])
                    if len(front_ends.seen) < configuration.front_ends:
                        front_ends.look()
            answers = await asyncio.gather(*running)
        for copy in range(copies):
            told = zip(numbers, answers[copy * len(numbers) :], strict=False)
            passes.append({n: each for n, each in told if not carried[n][0].aborted})
        if times > 1 and len(front_ends.seen) >= configuration.front_ends:
            break
    return tuple(passes), len(front_ends.seen)


@contextlib.asynccontextmanager
async def _held(server: Server, begun: asyncio.Semaphore, count: int) -> AsyncIterator[None]:
    """Hold the engine until so many requests have begun: answered at once, few would meet.

    Does nothing where the release cannot hold its engine.
    """
    async with access.coroutines(server.url, HELD) as rest:
        await rest.post(f"{server.url}/pause", params={"mode": "keep"})
        yield
        with contextlib.suppress(TimeoutError):  # where some are refused
            async with asyncio.timeout(HELD):
                for _ in range(count):
                    await begun.acquire()
        await asyncio.sleep(HANDED_OVER)
        await rest.post(f"{server.url}/resume")


async def asked(
    sdk: openai.AsyncOpenAI,
    model: str,
    ask: Ask,
    body: Mapping[str, Any],
    begun: asyncio.Semaphore | None = None,
) -> tuple[int, ...]:
    """Put one request, on a connection of its own, and return its tokens.

    ``begun`` is released when the server has taken it.
    """
    stream = await sdk.completions.create(
        model=model,
        prompt=list(ask.prompt),
        stream=True,
        extra_body=body,
        extra_headers={"Connection": "close"},  # so that several front ends have their share
    )
    if begun is not None:
        begun.release()
    tokens: list[int] = []
    async with contextlib.aclosing(stream):
        async for chunk in stream:
            for choice in chunk.choices:
                tokens += getattr(choice, "token_ids", None) or ()
            if ask.aborted and len(tokens) >= LEAVES_AFTER:
                break
    return tuple(tokens)
