# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: a real ``AsyncLLM`` on a CPU, with hooks that the environment names."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from reference_plugins.classifier_hook import HookRefused, Policy, hooks_of, install

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from multiprocessing.connection import Connection

    from vllm.outputs import RequestOutput
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine.async_llm import AsyncLLM

    from reference_plugins.classifier_hook import ScoringContext

    Told = dict[str, object]

PROMPT = {"prompt_token_ids": [5, 6, 7]}
SECRET = "write to ann@example.com"


class Slow:
    """Takes its time, and says how it ended."""

    name = "slow"
    blocking = False
    timeout_ms = 60_000

    def __init__(self) -> None:
        self.ends: list[str] = []
        self.started = asyncio.Event()

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Wait until cancelled, where the request asks for it."""
        if "wait" not in ctx.extra_fields:
            return {"tokens": len(ctx.output_token_ids)}
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise
        return {}


def run(connection: Connection, *, model: str) -> None:
    """Answer with what requests of all kinds came to."""
    connection.recv()
    os.environ["CLASSIFIER_HOOKS"] = (
        "reference_plugins.classifier_hook.hooks.annotator:PatternAnnotator,"
        "reference_plugins.classifier_hook.hooks.blocker:PiiBlocker"
    )
    install()
    connection.send(asyncio.run(_run(model)))


async def _run(model: str) -> dict[Any, Any]:
    from vllm import AsyncEngineArgs, envs
    from vllm.v1.engine.async_llm import AsyncLLM

    arguments = AsyncEngineArgs(
        model=model,
        enforce_eager=True,
        max_model_len=256,
        max_num_seqs=8,
        dtype="float32",
        kv_cache_memory_bytes=32 << 20,
        distributed_executor_backend="vllm.v1.executor.uniproc_executor.UniProcExecutor",
    )
    envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    engine = AsyncLLM.from_engine_args(arguments)
    try:
        return await _ask(engine)
    finally:
        engine.shutdown()


async def _ask(engine: AsyncLLM) -> dict[Any, Any]:
    slow = Slow()
    host = hooks_of(engine)
    assert host is not None
    told: dict[Any, Any] = {"configured": [entry.name for entry in host.registry.entries]}
    try:
        engine.register_external_classifier_hook(type("Twin", (Slow,), {"name": "pii"})())
    except HookRefused as error:
        told["refused"] = str(error)
    engine.register_external_classifier_hook(slow)

    for kind in ("DELTA", "CUMULATIVE", "FINAL_ONLY"):
        for text in (SECRET, "all is well"):
            told[kind, text] = await _generate(engine, kind, choice=text)
    told["several"] = await _generate(
        engine, "FINAL_ONLY", n=3, choice=SECRET, logprobs=2, temperature=1.0
    )
    told["several, streamed"] = await _generate(
        engine, "DELTA", n=3, temperature=1.0, ignore_eos=True, max_tokens=9
    )
    told["merged"] = await _generate(
        engine, "DELTA", slow=True, max_tokens=60, ignore_eos=True, logprobs=1
    )
    host.policy = Policy(streaming="hold", refusal="No.")
    told["held", SECRET] = await _generate(engine, "DELTA", choice=SECRET)
    told["held", "all is well"] = await _generate(engine, "DELTA", choice="all is well")
    host.policy = Policy()
    told["session"] = await _session(engine)
    told["cancelled"] = await _cancelled(engine, slow)
    told["aborted"] = await _aborted(engine, slow)
    told["left"] = {
        "unfinished": engine.output_processor.get_num_unfinished_requests(),
        "running": len(host.dispatcher.running),
        "strays": len(host.dispatcher.strays),
        "hooks": [t.get_name() for t in asyncio.all_tasks() if "classifier" in t.get_name()],
    }
    return told


def _params(kind: str, *, choice: str | None = None, **given: object) -> SamplingParams:
    from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams

    values: dict[str, Any] = {"temperature": 0.0, "max_tokens": 80, **given}
    if choice is not None:
        values["structured_outputs"] = StructuredOutputsParams(choice=[choice])
    return SamplingParams(output_kind=RequestOutputKind[kind], **values)


async def _generate(
    engine: AsyncLLM, kind: str, *, slow: bool = False, choice: str | None = None, **given: object
) -> list[Told]:
    outputs = []
    async for output in engine.generate(PROMPT, _params(kind, choice=choice, **given), "request"):
        outputs.append(_told(output))
        # It reads on when there is nothing more to come.
        while slow and engine.output_processor.has_unfinished_requests():  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(0.01)
    return outputs


def _told(output: RequestOutput) -> Told:
    return {
        "finished": output.finished,
        "scores": (output.metadata or {}).get("external_scores"),
        "completions": [
            {
                "index": one.index,
                "text": one.text,
                "tokens": len(one.token_ids),
                "logprobs": None if one.logprobs is None else len(one.logprobs),
                "reason": one.finish_reason,
            }
            for one in output.outputs
        ],
    }


async def _session(engine: AsyncLLM) -> list[Told]:
    """Ask two questions of one session, whose input is a stream."""
    from vllm.engine.protocol import StreamingInput

    answered = asyncio.Event()

    async def questions() -> AsyncIterator[Any]:
        yield StreamingInput(prompt={"prompt_token_ids": [5, 6]})
        await answered.wait()
        yield StreamingInput(prompt={"prompt_token_ids": [8, 9]})

    outputs = []
    params = _params("DELTA", max_tokens=4, ignore_eos=True)
    async for output in engine.generate(questions(), params, "session"):
        outputs.append(_told(output))
        if output.outputs[0].finish_reason:
            answered.set()
    return outputs


async def _cancelled(engine: AsyncLLM, slow: Slow) -> list[str]:
    slow.started.clear()
    reading = asyncio.ensure_future(
        _generate(engine, "DELTA", max_tokens=3, extra_args={"wait": 1})
    )
    await slow.started.wait()
    reading.cancel()
    await asyncio.wait([reading])
    await asyncio.sleep(0)
    assert reading.cancelled()
    return slow.ends.copy()


async def _aborted(engine: AsyncLLM, slow: Slow) -> list[Told]:
    slow.started.clear()
    reading = asyncio.ensure_future(
        _generate(engine, "FINAL_ONLY", max_tokens=3, extra_args={"wait": 1})
    )
    await slow.started.wait()
    await engine.abort("request")
    outputs = await reading
    await asyncio.sleep(0)  # the hook ends in the next round
    return outputs
