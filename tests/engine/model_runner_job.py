# SPDX-License-Identifier: Apache-2.0
"""Jobs that run engines with a chosen model runner."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import httpx

from conformance.engine.server import Server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from vllm.sampling_params import SamplingParams

    from conformance.engine.model_runner import Runner
    from conformance.engine.slot_recording import Event

# In no answer to these is the next best token near enough for rounding to decide.
PROMPTS = [[(7 * i + 5 * j) % 200 + 5 for j in range(20 + 11 * (i % 4))] for i in range(8)]
TOKENS = 16


def greedy(
    connection: Connection, model: str, runner: Runner, *, interpreted: bool = False
) -> None:
    """Answer with greedy tokens, how many are beyond doubt, and what the scheduler did."""
    connection.recv()
    if interpreted:
        _keep_kernels()
    from conformance.engine.offline import OfflineEngine

    engine = OfflineEngine.start(model, runner=runner)
    tokens = engine.generate_decided(PROMPTS, _params())
    prefills = [fill for order in engine.orders for fill in order.prefills.values()]
    facts = {
        "preempted": sum(len(order.preempted) for order in engine.orders),
        "chunked": sum(
            order.scheduled[name] < len(prompt)
            for order in engine.orders
            for name, prompt, _ in order.new
        ),
        "resumed": sum(len(fill.tokens) > fill.prompt_len for fill in prefills),
    }
    connection.send((tokens, facts))


def mixed(connection: Connection, model: str, *, interpreted: bool = False) -> None:
    """Answer with tokens for which every sampling parameter counts, and with what is refused."""
    connection.recv()
    if interpreted:
        _keep_kernels()
    from vllm.sampling_params import SamplingParams

    from conformance.engine.offline import OfflineEngine

    engine = OfflineEngine.start(model, runner="v2")
    random: dict[str, Any] = {"temperature": 0.9, "max_tokens": TOKENS, "ignore_eos": True}
    kinds: list[dict[str, Any]] = [
        {"top_k": 20, "top_p": 0.9},
        {"min_p": 0.05, "logit_bias": {5: 3.0}},
        {"repetition_penalty": 1.2, "frequency_penalty": 0.2, "presence_penalty": 0.1},
        {"allowed_token_ids": [7, 8, 9, 10], "min_tokens": 3},
        {"logprobs": 2},
    ]
    params = [
        SamplingParams(seed=number, **random, **kinds[number % len(kinds)])
        for number in range(len(PROMPTS))
    ]
    connection.send(engine.generate(PROMPTS, params))


def forced(connection: Connection, model: str, runner: Runner, how: str, target: str) -> None:
    """Load a plugin, force a token for every other request, and answer with all tokens.

    ``how`` is "class", "name" or "entry point"; what the engine raises is answered alone.
    """
    connection.recv()
    module, _, name = target.partition(":")
    plugin = getattr(importlib.import_module(module), name)
    processors: dict[str, list[Any]] = {"class": [plugin], "name": [target], "entry point": []}
    from vllm.exceptions import VLLMValidationError
    from vllm.sampling_params import SamplingParams

    from conformance.engine.entry_points import synthetic_distribution
    from conformance.engine.offline import OfflineEngine

    if how == "entry point":
        group = "vllm.logits_processors"
        folder = synthetic_distribution(
            Path.cwd(), name="forced", group=group, entries={"forced": target}
        )
        sys.path.insert(0, str(folder))
    try:
        engine = OfflineEngine.start(model, processors[how], runner=runner)
        tokens = engine.generate(PROMPTS, _params(lambda number: number % 2 == 1))
    except Exception as error:  # noqa: BLE001 - what is raised is the answer
        connection.send((f"{type(error).__name__}: {error}",))
        return
    refused = SamplingParams(max_tokens=2, extra_args={"target_token": "x"})
    try:
        engine.generate(PROMPTS[:1], [refused])
    except VLLMValidationError as error:
        connection.send((tokens, str(error), engine.generate(PROMPTS, _params())))


def recorded(connection: Connection, model: str, target: str, *, interpreted: bool = False) -> None:
    """Answer with what the engine sent a plugin, and whether a stranger can be recorded."""
    connection.recv()
    if interpreted:
        _keep_kernels()
    module, _, name = target.partition(":")
    plugin = getattr(importlib.import_module(module), name)
    from conformance.engine.offline import OfflineEngine
    from conformance.engine.slot_recording import SlotRecording

    engine = OfflineEngine.start(model, [plugin], runner="v2")
    recording = SlotRecording.insert(engine.runner.sampler, plugin)
    engine.generate(PROMPTS, _params(lambda number: number % 2 == 1))
    try:
        SlotRecording.insert(engine.runner.sampler, plugin)
    except LookupError as error:
        connection.send(([_plain(event) for event in recording.events], str(error)))


def asked(connection: Connection, model: str, target: str) -> None:
    """Answer with what ``AsyncLLM`` and a forked server say to a request that forces a token."""
    connection.recv()
    from conformance.engine.async_engine import AsyncEngine

    engine = AsyncEngine.start(model, [target], runner="v2")
    server = Server.start(
        model,
        log=Path.cwd() / "server.log",
        logits_processors=[target],
        python_path=[str(Path(__file__).parent)],
        imported=True,
        runner="v2",
    )
    engine.wait_started()
    tokens = engine.generate(PROMPTS, _params(lambda number: number % 2 == 1))
    engine.close()
    server.wait_healthy(120)
    connection.send((tokens, [_complete(server, number) for number in range(2)]))
    server.stop()


def served(connection: Connection, model: str, target: str, python_path: list[str]) -> None:
    """Answer with what a server of its own says, which finds the plugin as an entry point."""
    connection.recv()
    with Server.start(
        model,
        log=Path.cwd() / "server.log",
        entry_points={"vllm.logits_processors": {"forced": target}},
        python_path=[str(Path(__file__).parent), *python_path],
        environment={"TRITON_INTERPRET": "1"} if python_path else None,
        runner="v2",
    ) as server:
        server.wait_healthy()
        connection.send([_complete(server, number) for number in range(2)])


def _complete(server: Server, number: int) -> tuple[int, ...]:
    """Return the tokens of a completion of one prompt; odd ones are to be forced."""
    body = {
        "model": server.model_name,
        "prompt": PROMPTS[number],
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
        "return_token_ids": True,
        **({"vllm_xargs": {"target_token": _forced_token(number)}} if number % 2 else {}),
    }
    answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
    return tuple(answer.raise_for_status().json()["choices"][0]["token_ids"])


def _forced_token(number: int) -> int:
    """Return the token that a prompt's answer is to consist of."""
    return 100 + number


def _params(force: Callable[[int], bool] = lambda _: False) -> Sequence[SamplingParams]:
    from vllm.sampling_params import SamplingParams

    return [
        SamplingParams(
            max_tokens=TOKENS,
            temperature=0,
            ignore_eos=True,
            extra_args={"target_token": _forced_token(number)} if force(number) else None,
        )
        for number in range(len(PROMPTS))
    ]


def _keep_kernels() -> None:
    """Leave vLLM its own kernels: nothing is to stand in for them."""
    from vllm.triton_utils import HAS_TRITON

    from conformance.engine import kernels

    assert HAS_TRITON
    kernels.install = lambda: None  # type: ignore[assignment]


def _plain(event: Event) -> tuple[str, Any]:
    """Return what can be compared, without what vLLM adds to the names of requests at random."""

    def kept(_: object, value: Any) -> Any:  # noqa: ANN401 - of any field
        return value.partition("-")[0] if isinstance(value, str) else value

    values = attrs.asdict(
        event, filter=lambda field, _: bool(field.eq), value_serializer=lambda _, f, v: kept(f, v)
    )
    return type(event).__name__, values
