# SPDX-License-Identifier: Apache-2.0
"""Runs in workers: requests to ``/pooling`` through an IO processor, or without it.

Without it a request carries the prompts that the plugin would have made of the data, so that both
servers compute the same.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from multiprocessing.connection import Connection
from typing import Any

import httpx

from conformance.benchmark.figures import Failed, Round, answering
from conformance.benchmark.surroundings import environment
from conformance.engine.environment import chosen_device
from conformance.engine.pooling_models import named_model
from conformance.plugin.profile import of_plugin
from conformance.plugin.target import Plugin
from conformance.settings import Settings, UsageError
from conformance.worker.jobs import class_of

Body = Mapping[str, Any]

#: Seconds that an answer may take.
LIMIT = 120.0


def serve(connection: Connection, *, plugin: Plugin, settings: Settings, model: str) -> None:
    """Answer ``"open"`` with the model's folder and the versions, then make rounds.

    Each ``(url, name of the model, requests at once, whether through the plugin)`` is answered
    with a :class:`Round`, or with :class:`Failed`.
    """
    with answering(connection):
        connection.recv()
        try:
            section, chosen = _section(plugin, settings, model)
            with_plugin, without = _bodies(plugin, section, settings, chosen)
        except (UsageError, ValueError) as error:
            connection.send(UsageError(str(error)))
            return
        connection.send((chosen, environment(chosen_device(settings.device))))
        while True:
            url, name, crowd, through = connection.recv()
            bodies = with_plugin if through else without
            connection.send(asyncio.run(_round(url, name, crowd, bodies)))


def _section(plugin: Plugin, settings: Settings, model: str) -> tuple[Mapping[str, Any], str]:
    """Return the plugin's part of its profile, and the folder of its model."""
    found = of_plugin(plugin, settings)
    section = found.section(plugin.interface) if found else {}
    return section, str(named_model(section["model"])) if "model" in section else model


def _bodies(
    plugin: Plugin, section: Mapping[str, Any], settings: Settings, model: str
) -> tuple[list[Body], list[Body]]:
    """Return what requests carry with the plugin, and what the same ones carry without it.

    Raises:
        UsageError: nobody knows what the plugin takes.
        ValueError: what it makes of that cannot be asked for without it.

    """
    # Imported here: they import vLLM, for which the run must have set the stage.
    from conformance.io_processor.bench import Bench
    from conformance.io_processor.discovery import find

    bench = Bench.open(class_of(plugin), plugin.generation, model, settings.seed)
    found = find(bench, section, origin="the profile")
    valid = found.valid[: found.given] or found.valid
    if not valid:
        raise UsageError(
            f"{plugin.target}: no request is known that it answers; write a profile "
            "(vllm-conformance init TARGET makes one to start from)."
        )
    instance = bench.make().plugin
    without: list[Body] = []
    for data in valid:
        prompts = instance.pre_process(instance.parse_data(data))
        several = isinstance(prompts, list | tuple) and not _is_ids(prompts)
        without.append({"input": [_plain(p) for p in (prompts if several else [prompts])]})
    with_plugin: list[Body] = [{"data": data} for data in valid]
    return with_plugin, without


def _is_ids(prompt: Sequence[Any]) -> bool:
    return bool(prompt) and all(isinstance(token, int) for token in prompt)


def _plain(prompt: object) -> str | list[int]:
    """Return a prompt as a request without a plugin carries it.

    Raises:
        ValueError: it does not, for example an image.

    """
    if isinstance(prompt, dict) and "multi_modal_data" not in prompt:
        prompt = prompt.get("prompt_token_ids") or prompt.get("prompt")
    if isinstance(prompt, str):
        return prompt
    if isinstance(prompt, list | tuple) and _is_ids(prompt):
        return list(prompt)
    raise ValueError(
        "its prompts are neither text nor token ids: without the plugin nobody could ask the same."
    )


async def _round(url: str, name: str, crowd: int, bodies: Sequence[Body]) -> Round | Failed:
    """Make twice as many requests as are made at once, and four at least."""
    count = max(4, 2 * crowd)
    waiting = asyncio.Semaphore(crowd)
    latencies: list[float] = []
    async with httpx.AsyncClient(timeout=LIMIT, trust_env=False) as http:

        async def ask(number: int) -> str | None:
            body = {"model": name, **bodies[number % len(bodies)]}
            async with waiting:
                started = time.perf_counter()
                response = await http.post(f"{url}/pooling", json=body)
                latencies.append(time.perf_counter() - started)
            if response.status_code == HTTPStatus.OK:
                return None
            return f"HTTP {response.status_code}: {response.text[:200]}"

        started = time.perf_counter()
        failures = [why for why in await asyncio.gather(*map(ask, range(count))) if why]
        seconds = time.perf_counter() - started
    if failures:
        return Failed(f"a request failed: {failures[0]}")
    ordered = sorted(latencies)
    return Round(
        0,
        count,
        seconds,
        latency=statistics.median(ordered),
        latency_p99=ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))],
    )
