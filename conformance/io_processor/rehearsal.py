# SPDX-License-Identifier: Apache-2.0
"""Making sure of the hosts: a plugin that can do nothing wrong must be answered.

A release of vLLM that wants something else of its engine would otherwise be blamed on plugins.
"""

from __future__ import annotations

import asyncio
import importlib.util
from functools import cache
from typing import Any

import vllm
from vllm.plugins.io_processors.interface import IOProcessor
from vllm.pooling_params import PoolingParams

from conformance.engine.pooling_models import tiny_embedding
from conformance.io_processor import DATA
from conformance.io_processor.engine import ScriptedEngine
from conformance.io_processor.host import (
    Batched,
    Documented,
    DocumentedOffline,
    Offline,
    Online,
    Served,
    Surroundings,
    surroundings,
)
from conformance.io_processor.watched import Watched
from conformance.watching.comparison import first_line

#: Where the plain hooks are called since 0.20.
FRONT_END = "vllm.entrypoints.pooling.pooling.io_processor"


class HostMisfit(Exception):
    """The installed vLLM cannot be driven; its text is one sentence."""


class _Echo(IOProcessor[list[int], list[int]]):
    """Answers how many tokens there were."""

    def parse_data(self, data: Any) -> list[int]:  # noqa: ANN401 - JSON values
        return list(data)

    def merge_pooling_params(self, params: PoolingParams | None = None) -> PoolingParams:
        del params
        return PoolingParams(task="embed")

    def pre_process(self, prompt: list[int], request_id: str | None = None, **_: object) -> Any:  # noqa: ANN401 - as vLLM calls it
        del request_id
        return [{"prompt_token_ids": prompt}]

    def post_process(self, model_output: Any, request_id: str | None = None, **_: Any) -> list[int]:  # noqa: ANN401 - as vLLM calls it
        del request_id
        return [len(output.prompt_token_ids) for output in model_output]


def awaits_hooks() -> bool:
    """Tell whether the installed vLLM awaits pre_process_async and post_process_async."""
    return importlib.util.find_spec(FRONT_END) is None


@cache
def installed_hosts(around: Surroundings) -> tuple[Online, Offline]:
    """Return vLLM's own front ends, online and offline.

    Releases before 0.20 have none that can be had without an engine; they await the hooks, and are
    the documented host.

    Raises:
        HostMisfit: they cannot be made here, or do not answer.

    """
    try:
        hosts = _hosts(around)
        if around.own is None:  # its prompts may be of tensors alone
            around = surroundings(str(tiny_embedding()))
        online, offline = _hosts(around)
        plugin = Watched(_Echo(around.config, around.renderer))
        answers = [asyncio.run(_asked(online, plugin, around)), offline.serve(plugin, [1, 2, 3])]
    except Exception as error:
        why = f"{type(error).__name__}: {first_line(str(error))}"
        raise HostMisfit(
            f"vLLM {vllm.__version__} serves IO processors in a way that is not known here: {why}"
        ) from error
    if answers != [[3], [3]]:
        raise HostMisfit(f"vLLM {vllm.__version__} answered {answers} where it must be 3 tokens")
    return hosts


def _hosts(around: Surroundings) -> tuple[Online, Offline]:
    if awaits_hooks():
        documented = Documented(DATA, around)
        return documented, DocumentedOffline(documented)
    return Served.open(around), Batched.open(around)


async def _asked(online: Online, plugin: Watched, around: Surroundings) -> object:
    engine = ScriptedEngine(around.config, around.renderer, around.admit)
    task = asyncio.create_task(online.serve(plugin, engine, [1, 2, 3], "id-0"))
    while not task.done():
        for entry in list(engine.pending):
            engine.deliver(entry)
        await asyncio.sleep(0)
    return task.result().data
