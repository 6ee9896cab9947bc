# SPDX-License-Identifier: Apache-2.0
"""A job: a plugin in an engine of several tensor-parallel ranks, and what each rank computed."""

from __future__ import annotations

import hashlib
import importlib
import os
from typing import TYPE_CHECKING, Any

from vllm import LLM, SamplingParams, envs
from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance.engine import model_runner
from conformance.engine.offline import engine_arguments

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch
    from vllm.v1.sample.logits_processor import BatchUpdate

PROMPTS = [[3 + index, 7, 11] for index in range(6)]
TOKENS = 8


class Digested(LogitsProcessor):
    """Keeps a digest of every batch that the plugin under test returned."""

    plugin: type[LogitsProcessor]

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ANN401 - vLLM's
        """Make the plugin under test."""
        self._inner = self.plugin(vllm_config, device, is_pin_memory)
        self.digests: list[str] = []

    def is_argmax_invariant(self) -> bool:
        """Return the plugin's claim."""
        claim: bool = self._inner.is_argmax_invariant()
        return claim

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Pass a batch update on."""
        self._inner.update_state(batch_update)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Pass logits on."""
        result = self._inner.apply(logits)
        rows = result.contiguous().numpy().tobytes()
        self.digests.append(hashlib.sha256(rows).hexdigest())
        return result


def digests(worker: Any) -> list[str]:  # noqa: ANN401 - a worker of vLLM
    """Return what the plugin returned on one rank."""
    groups = worker.model_runner.input_batch.logitsprocs
    return next(p.digests for p in groups.all if type(p).__name__ == "Digested")


def run(
    connection: Connection, target: str, keywords: dict[str, Any], model: str, ranks: int
) -> None:
    """Answer with the tokens of every request, and the digests of each rank."""
    connection.recv()
    module, _, name = target.partition(":")
    Digested.plugin = getattr(importlib.import_module(module), name)
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ["VLLM_CPU_OMP_THREADS_BIND"] = "|".join(str(rank) for rank in range(ranks))
    os.environ.update(model_runner.environment("v1"))
    # vLLM would spawn the ranks, and each would import everything again.
    envs.VLLM_WORKER_MULTIPROC_METHOD = "fork"
    arguments = engine_arguments(model, [Digested], "cpu") | {"tensor_parallel_size": ranks}
    llm = LLM(**arguments)
    params = [
        SamplingParams(
            temperature=0.0, max_tokens=TOKENS, ignore_eos=True, **(keywords if on else {})
        )
        for on in (True, False) * (len(PROMPTS) // 2)
    ]
    outputs = llm.generate([{"prompt_token_ids": p} for p in PROMPTS], params, use_tqdm=False)
    tokens = [tuple(output.outputs[0].token_ids) for output in outputs]
    connection.send((tokens, llm.collective_rpc(digests)))
    llm.llm_engine.engine_core.shutdown()
