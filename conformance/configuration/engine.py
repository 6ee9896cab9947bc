# SPDX-License-Identifier: Apache-2.0
"""A job: one engine of one configuration, and what it answers to a workload."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Mapping, Sequence
from functools import reduce
from multiprocessing.connection import Connection
from typing import Any

import attrs

from conformance.configuration import idle, variants
from conformance.configuration.asked import IDLE, TESTED, Answers, Ask, Workload
from conformance.configuration.table import PLAIN, Configuration
from conformance.engine import model_runner
from conformance.engine.environment import chosen_device, give_cores
from conformance.engine.model_runner import Runner
from conformance.engine.offline import (
    MAX_MODEL_LEN,
    OfflineEngine,
    embeddings,
    engine_arguments,
)
from conformance.generations import named as generation_named
from conformance.logits.keywords import sampling_params
from conformance.logits.ways import Reply
from conformance.plugin.target import Plugin
from conformance.settings import Settings
from conformance.worker.installed import suite_of
from conformance.worker.jobs import class_of, deployed

#: Room for every request of a workload, so that only configurations make them wait.
_ROOM = {"max_num_batched_tokens": 2048, "max_num_seqs": 64, "num_gpu_blocks_override": None}

#: Steps after which late requests join, and after which some are aborted.
JOIN_AFTER, ABORT_AFTER = 4, 7


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
    """Answer with what the engine answers; ``loaded`` says what it is started with."""
    connection.recv()
    started = time.monotonic()
    if (module := configuration.needs_module) and importlib.util.find_spec(module) is None:
        connection.send(Answers(absent=f"{module} is not installed"))
        return
    llm = None
    try:
        # With the plugin or without it: engines differ in that alone.
        model = deployed(plugin, settings) or model
        processors = _processors(plugin, loaded)
        runner = suite_of(generation_named(plugin.generation)).runner or "v1"
        llm = _start(model, configuration, processors, runner, chosen_device(settings.device))
        answers = _answers(llm, model, configuration, workload.asks)
    except Exception as error:  # noqa: BLE001 - whatever vLLM or the plugin raises is the answer
        answers = Answers(started=llm is not None, problem=said(error))
    if llm is not None:
        with contextlib.suppress(Exception):
            llm.llm_engine.engine_core.shutdown()
    connection.send(attrs.evolve(answers, seconds=time.monotonic() - started))


def said(error: BaseException) -> str:
    """Return what an exception says, and not those that came of it, on one line."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = f"{type(error).__name__}: {error}".partition(" [type=")[0]
    return " ".join(text.split())


def _processors(plugin: Plugin, loaded: str) -> list[type]:
    """Return what the engine is loaded with."""
    if loaded == TESTED:
        return [class_of(plugin)]
    return [idle.plugin(plugin.generation)] if loaded == IDLE else []


def _start(
    model: str,
    configuration: Configuration,
    processors: list[type],
    runner: Runner,
    device: str,
) -> Any:  # noqa: ANN401 - vllm.LLM
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = str(int(configuration.own_process))
    os.environ.update(model_runner.environment(runner))
    give_cores(configuration.ranks, device)
    from vllm import LLM, envs

    if device == "cpu":
        # Spawned, each would import everything again; on a GPU vLLM has to have it so.
        envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    model_runner.prepare()
    arguments = {**engine_arguments(model, processors, device), **_ROOM}
    return LLM(**arguments | _made(configuration, model))


def _made(configuration: Configuration, model: str) -> dict[str, Any]:
    """Return the arguments of a configuration, with the folders that are made of the model."""
    arguments = dict(configuration.arguments)
    for argument, function in configuration.made.items():
        name, _, key = argument.partition(".")
        folder = getattr(variants, function)(model)
        arguments[name] = {**arguments[name], key: folder} if key else folder
    return arguments


def _answers(
    llm: Any,  # noqa: ANN401 - vllm.LLM
    model: str,
    configuration: Configuration,
    asks: Sequence[Ask],
) -> Answers:
    """Ask an engine that has started."""
    for name, value in configuration.becomes.items():
        if reduce(getattr, name.split("."), llm.llm_engine.vllm_config) != value:
            return Answers(started=True, absent="vLLM switches it off on this platform")
    replies = _replies(llm, asks) if configuration.name == PLAIN.name else {}
    watched = OfflineEngine(llm)
    if configuration.preempts:
        watched.watch_scheduler()
    if configuration.reloads:
        _Crowd(llm, configuration, model, asks).run("before")
        llm.collective_rpc("reload_weights", kwargs={"weights_path": model})
    passes = []
    for number in range(2):  # a plugin that keeps something answers otherwise the second time
        if number and configuration.pauses:
            llm.sleep(level=1)
            llm.wake_up()
        passes.append(_Crowd(llm, configuration, model, asks).run(str(number)))
    # vLLM adds to the name of a request.
    lost = {name.split("-")[1] for order in watched.orders for name in order.preempted}
    # The requests of a probe all opt out.
    telling = [number for number, ask in enumerate(asks) if ask.on] or range(len(asks))
    if configuration.preempts and lost.isdisjoint(map(str, telling)):
        return Answers(started=True, absent="no request of the plugin's was preempted")
    return Answers(passes=tuple(passes), replies=replies, started=True)


def _replies(llm: object, asks: Sequence[Ask]) -> dict[int, Reply]:
    """Ask for everything at once, and note which tokens no rounding can change."""
    compared = [(number, ask) for number, ask in enumerate(asks) if not ask.aborted]
    decided = OfflineEngine(llm).generate_decided(
        [ask.prompt for _, ask in compared],
        [sampling_params(ask.keywords, ask.label) for _, ask in compared],
    )
    return {number: Reply(*answer) for (number, _), answer in zip(compared, decided, strict=True)}


class _Crowd:
    """One pass: the requests of a workload, and what a configuration puts beside them."""

    def __init__(
        self,
        llm: Any,  # noqa: ANN401 - vllm.LLM
        configuration: Configuration,
        model: str,
        asks: Sequence[Ask],
    ) -> None:
        self._engine = llm.llm_engine
        self._configuration = configuration
        self._model = model
        # Left out here, and not in the workload: a number means the same request everywhere.
        # Beside drafts vLLM takes no biases.
        drafts = "speculative_config" in configuration.arguments
        self._asks = {
            number: ask
            for number, ask in enumerate(asks)
            if (ask.greedy or not configuration.greedy_only)
            and not (drafts and "logit_bias" in ask.keywords)
        }
        self._tokens: dict[str, tuple[int, ...]] = {}

    def run(self, name: str) -> dict[int, tuple[int, ...]]:
        """Send everything, step until all is answered, and return the tokens by number."""
        early = [n for n, ask in self._asks.items() if not ask.late]
        late = [n for n, ask in self._asks.items() if ask.late]
        self._add(name, early)
        self._add_beside(name)
        for _ in range(JOIN_AFTER):
            self._step()
        self._add(name, late)
        for _ in range(ABORT_AFTER - JOIN_AFTER):
            self._step()
        self._engine.abort_request([f"{name}-{n}" for n, a in self._asks.items() if a.aborted])
        while self._engine.has_unfinished_requests():
            self._step()
        return {
            number: self._tokens[f"{name}-{number}"]
            for number, ask in self._asks.items()
            if not ask.aborted
        }

    def _add(self, name: str, numbers: Sequence[int]) -> None:
        for number in numbers:
            ask = self._asks[number]
            keywords = dict(ask.keywords)
            if self._configuration.fills_context and not ask.aborted:
                keywords["max_tokens"] = MAX_MODEL_LEN - len(ask.prompt)
            # The smaller number goes first.
            priority = -number if self._configuration.prioritised else 0
            self._send(f"{name}-{number}", {"prompt_token_ids": [*ask.prompt]}, keywords, priority)

    def _add_beside(self, name: str) -> None:
        """Send what stands beside the workload, whose answers nobody compares."""
        for number, ask in self._asks.items():
            if self._configuration.structured and not ask.on:
                keywords = {**ask.keywords, "structured_outputs": {"regex": "[ab]{4,40}"}}
                prompt = {"prompt_token_ids": [*ask.prompt, 9]}
                self._send(f"{name}-{number}-grammar", prompt, keywords)
            if self._configuration.embedded and not ask.on:
                prompt = {"prompt_embeds": embeddings(self._model, ask.prompt)}
                self._send(f"{name}-{number}-embedded", prompt, ask.keywords)
            if self._configuration.adapted:
                prompt = {"prompt_token_ids": [*ask.prompt]}
                self._send(f"{name}-{number}-adapted", prompt, ask.keywords, adapted=True)

    def _send(
        self,
        name: str,
        prompt: dict[str, Any],
        keywords: Mapping[str, Any],
        priority: int = 0,
        *,
        adapted: bool = False,
    ) -> None:
        from vllm.lora.request import LoRARequest
        from vllm.sampling_params import StructuredOutputsParams

        if isinstance(grammar := keywords.get("structured_outputs"), dict):
            keywords = {**keywords, "structured_outputs": StructuredOutputsParams(**grammar)}
        params = sampling_params(keywords, name)
        adapter = LoRARequest("adapter", 1, variants.adapter(self._model)) if adapted else None
        self._engine.add_request(name, prompt, params, lora_request=adapter, priority=priority)

    def _step(self) -> None:
        if not self._engine.has_unfinished_requests():
            return
        for output in self._engine.step():
            self._tokens[output.request_id] = tuple(output.outputs[0].token_ids)
