# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: a real ``LLM`` on a CPU, on whose ``LLMEngine`` hooks are registered."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from typing import TYPE_CHECKING, Any

from engine_job import PROMPT, SECRET, _params, _told

from conformance.engine.offline import engine_arguments
from reference_plugins.classifier_hook import HookRefused, Policy, hooks_of, install
from reference_plugins.classifier_hook.hooks.blocker import PiiBlocker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from reference_plugins.classifier_hook import ScoringContext


class Counts:
    """Counts tokens, with a lock that belongs to one event loop."""

    name = "counts"
    blocking = False
    timeout_ms = 60_000

    def __init__(self) -> None:
        self.lock = asyncio.Lock()

    async def score(self, ctx: ScoringContext) -> dict[str, Any]:
        """Take turns."""
        async with self.lock:
            await asyncio.sleep(0.001)
            fields = dict(ctx.extra_fields)
            return {"tokens": len(ctx.output_token_ids), "text": ctx.generated_text, **fields}


def run(connection: Connection, *, model: str) -> None:
    """Answer with what requests of all kinds came to."""
    connection.recv()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    install()
    connection.send(_asked(model))


def _asked(model: str) -> dict[str, Any]:
    from vllm import LLM

    llm = LLM(**engine_arguments(model, [], "cpu"))
    engine: Any = llm.llm_engine
    own = [vars(engine).get(name) for name in ("add_request", "step", "abort_request")]
    told: dict[str, Any] = {"untouched": own}
    engine.register_external_classifier_hook(PiiBlocker())
    try:
        engine.register_external_classifier_hook(PiiBlocker())
    except HookRefused as error:
        told["refused"] = str(error)
    engine.register_external_classifier_hook(Counts())
    params = [
        _params("FINAL_ONLY", choice=SECRET, n=2, temperature=1.0),
        *(_params("FINAL_ONLY", choice="all is well", extra_args={"n": n}) for n in range(3)),
        _params("FINAL_ONLY", max_tokens=5, ignore_eos=True),
    ]
    told["batch"] = [_told(output) for output in llm.generate([PROMPT] * len(params), params)]

    outputs = asyncio.run(_within(llm, _params("FINAL_ONLY", choice="all is well")))
    told["within a loop"] = [_told(output) for output in outputs]
    for kind in ("DELTA", "CUMULATIVE"):
        told[kind] = _streamed(engine, _params(kind, choice=SECRET))
    told["several, streamed"] = _streamed(
        engine, _params("DELTA", n=2, temperature=1.0, ignore_eos=True, max_tokens=4)
    )
    hooks_of(engine).policy = Policy(streaming="hold")  # type: ignore[union-attr] # it has hooks
    told["held"] = _streamed(engine, _params("DELTA", choice=SECRET))
    engine.add_request("gone", PROMPT, _params("DELTA", max_tokens=50, ignore_eos=True))
    engine.step()
    engine.abort_request(["gone"])
    told["aborted"] = [engine.has_unfinished_requests()]
    beams = llm.beam_search([PROMPT], _beams())
    told["beams"] = [len(sequence.tokens) for sequence in beams[0].sequences]
    threads = [one for one in threading.enumerate() if one.name.startswith("classifier hooks")]
    del engine, llm, outputs
    gc.collect()
    for thread in threads:
        thread.join(10)
    told["threads"] = [thread.is_alive() for thread in threads]
    return told


async def _within(llm: Any, params: Any) -> Any:  # noqa: ANN401 - an LLM, SamplingParams, outputs
    return llm.generate([PROMPT], [params])


def _beams() -> Any:  # noqa: ANN401 - BeamSearchParams
    from vllm.sampling_params import BeamSearchParams

    return BeamSearchParams(beam_width=2, max_tokens=3)


def _streamed(engine: Any, params: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - an LLMEngine
    engine.add_request("streamed", PROMPT, params)
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return [_told(output) for output in outputs]
