# SPDX-License-Identifier: Apache-2.0
"""Runs in workers: rounds of requests against an engine in the same process, or a server.

Servers are asked by vLLM's own load generator, that of ``vllm bench serve``.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from conformance.benchmark.figures import Failed, Round, answering
from conformance.benchmark.surroundings import environment
from conformance.engine import model_runner
from conformance.engine.environment import GPU_SHARE, chosen_device
from conformance.engine.model_runner import Runner
from conformance.logits.conversation import body_of
from conformance.logits.keywords import sampling_params
from conformance.settings import Device

Keywords = Mapping[str, Any]

#: Tokens of each prompt and each answer.
PROMPT, ANSWER = 16, 32

#: Requests that an engine works on at once.
MOST_SEQUENCES = 64
MOST_TOKENS = 512  #: of a request

#: Bytes for keys and values: of a tiny model on a CPU, and on a GPU of a larger one as well.
CACHE_BYTES = {"cpu": 64 << 20, "cuda": 1 << 30}


def engine_arguments(model: str, *, device: str, eager: bool) -> dict[str, Any]:
    """Return the options of engines and servers that are compared."""
    memory = {"gpu_memory_utilization": GPU_SHARE} if device == "cuda" else {}
    return {
        "model": model,
        "enforce_eager": eager,
        "max_model_len": MOST_TOKENS,
        "max_num_seqs": MOST_SEQUENCES,
        "enable_prefix_caching": False,
        "dtype": "float32" if device == "cpu" else "auto",
        "seed": 0,
        "kv_cache_memory_bytes": CACHE_BYTES[device],
        **memory,
    }


def prompts(count: int) -> list[list[int]]:
    """Return prompts as token ids, no two of them the same."""
    return [[3 + (7 * row + 11 * place) % 400 for place in range(PROMPT)] for row in range(count)]


def offline(
    connection: Connection,
    *,
    model: str,
    plugin: str | None,
    on: Sequence[Keywords],
    runner: Runner,
    device: str,
    eager: bool,
) -> None:
    """Answer ``"start"`` with True when an engine runs, then each number of requests.

    With a :class:`Round` each.

    Args:
        connection: to the caller; it gets :class:`Failed` where something raised.
        model: folder of the model.
        plugin: ``package.module:Class`` of a logits processor, or None.
        on: the parameter sets that requests get in turn.
        runner: the model runner.
        device: ``cpu`` or ``cuda``.
        eager: whether CUDA graphs are left out.

    """
    with answering(connection):
        connection.recv()
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        os.environ.update(model_runner.environment(runner))
        model_runner.prepare()
        from vllm import LLM

        options = engine_arguments(model, device=device, eager=eager)
        if plugin is not None:
            options["logits_processors"] = [plugin]
        llm = LLM(**options)
        gc.collect()
        gc.freeze()
        connection.send(True)  # noqa: FBT003 - that it runs
        while True:
            connection.send(_generate(llm, connection.recv(), on))


def _generate(llm: Any, count: int, on: Sequence[Keywords]) -> Round:  # noqa: ANN401 - vLLM's LLM
    params = []
    for row in range(count):
        keywords = dict(on[row % len(on)]) if on else {}
        params.append(sampling_params({"max_tokens": ANSWER, "ignore_eos": True, **keywords}, "on"))
    asked = [{"prompt_token_ids": prompt} for prompt in prompts(count)]
    started, processor = time.perf_counter(), time.process_time()
    outputs = llm.generate(asked, params, use_tqdm=False)
    seconds, used = time.perf_counter() - started, time.process_time() - processor
    tokens = sum(len(output.outputs[0].token_ids) for output in outputs)
    return Round(tokens, count, seconds, processor_seconds=used)


def online(
    connection: Connection,
    *,
    model: str,
    on: Sequence[Keywords],
    telling: Device | None = None,
) -> None:
    """Answer each ``(url, name of the model, requests at once)`` with a :class:`Round`.

    A round has twice as many requests as are made at once, and four at least.

    Args:
        connection: to the caller; it gets :class:`Failed` where something raised.
        model: folder of the model, for its tokenizer.
        on: the parameter sets that requests get in turn.
        telling: where servers run, if the first question is for the versions and the machine.

    """
    with answering(connection):
        if telling is not None:
            connection.recv()
            connection.send(environment(chosen_device(telling)))
        serving = importlib.import_module("vllm.benchmarks.serve")
        tokenizer = serving.get_tokenizer(model)
        while True:
            url, name, crowd = connection.recv()
            asked = requests(serving.SampleRequest, max(4, 2 * crowd), on)
            found = asyncio.run(_ask(serving, tokenizer, url, name, asked, crowd))
            connection.send(found)


def requests(kind: type[Any], count: int, on: Sequence[Keywords]) -> list[Any]:
    """Return requests of vLLM's load generator, of which each opts in where that is asked."""
    return [
        kind(
            prompt=prompt,
            prompt_len=PROMPT,
            expected_output_len=ANSWER,
            request_overrides=body_of(on[row % len(on)]) if on else None,
        )
        for row, prompt in enumerate(prompts(count))
    ]


async def _ask(  # noqa: PLR0917 - nobody else calls it
    serving: Any,  # noqa: ANN401 - vLLM's module
    tokenizer: object,
    url: str,
    name: str,
    asked: Sequence[Any],
    crowd: int,
) -> Round | Failed:
    """Put requests to a server, so many at once."""
    found = await serving.benchmark(
        task_type=serving.TaskType.GENERATION,
        endpoint_type="openai",
        api_url=f"{url}/v1/completions",
        base_url=url,
        model_id=name,
        model_name=name,
        tokenizer=tokenizer,
        input_requests=list(asked),
        logprobs=None,
        request_rate=float("inf"),
        burstiness=1.0,
        disable_tqdm=True,
        num_warmups=0,
        profile=False,
        selected_percentile_metrics=["ttft", "tpot", "e2el"],
        selected_percentiles=[50.0, 99.0],
        ignore_eos=True,
        goodput_config_dict={},
        max_concurrency=crowd,
        lora_modules=None,
        extra_headers=None,
        extra_body=None,
        ready_check_timeout_sec=0,
    )
    if found["completed"] != len(asked):
        errors = [error for error in found["errors"] if error]
        return Failed(f"a request failed: {errors[0] if errors else 'no answer'}")
    return Round(
        found["total_output_tokens"],
        len(asked),
        found["duration"],
        first_token=found["median_ttft_ms"] / 1000,
        per_token=found["mean_tpot_ms"] / 1000,
        latency=found["median_e2el_ms"] / 1000,
        latency_p99=found["p99_e2el_ms"] / 1000,
    )
