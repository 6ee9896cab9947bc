# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: what an engine tells a processor of requests that ask for something else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from vllm.sampling_params import BeamSearchParams, SamplingParams
from vllm.v1.sample.logits_processor import LogitsProcessor

from conformance.engine import model_runner
from conformance.engine.models import tiny_llama
from conformance.engine.offline import embeddings, engine_arguments

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch
    from vllm.config import VllmConfig
    from vllm.v1.sample.logits_processor import BatchUpdate

ADDED: list[tuple[Any, ...]] = []


class Records(LogitsProcessor):
    """Keeps what it is told of requests."""

    def __init__(self, vllm_config: VllmConfig, device: torch.device, is_pin_memory: bool) -> None:
        """Keep nothing yet."""

    def is_argmax_invariant(self) -> bool:
        """Return that it may be called for every batch."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Write the added requests down."""
        for _, params, prompt, _ in batch_update.added if batch_update else ():
            told = (params.extra_args, params.max_tokens, params.logprobs)
            ADDED.append((*told, None if prompt is None else len(prompt), repr(params)))

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Change nothing."""
        return logits


def told(connection: Connection) -> None:
    """Answer what a processor is told of each request, by what a client asked for."""
    connection.recv()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    os.environ.update(model_runner.environment("v1"))
    from vllm import LLM

    model = str(tiny_llama())
    arguments = engine_arguments(model, [Records], "cpu")
    llm = LLM(**arguments, enable_prompt_embeds=True, scheduling_policy="priority")
    found: dict[str, list[tuple[Any, ...]]] = {}
    text = {"prompt": "the quick brown fox"}
    ids: Any = {"prompt_token_ids": [5, 7, 11, 13]}
    own = SamplingParams(max_tokens=2, extra_args={"own": 1})

    def keep(name: str) -> None:
        found[name] = list(ADDED)
        ADDED.clear()

    keep("nothing")
    llm.beam_search([ids], BeamSearchParams(beam_width=2, max_tokens=3, ignore_eos=True))
    keep("beam search")
    cut = {"truncate_prompt_tokens": 3}
    llm.generate([text], own.clone(), use_tqdm=False, tokenization_kwargs=cut)
    keep("truncated")
    llm.generate([{"prompt_embeds": embeddings(model, [5, 7])}], own.clone(), use_tqdm=False)
    keep("embeddings")
    llm.generate([ids], own.clone(), use_tqdm=False)
    keep("plain")
    llm.generate([ids], own.clone(), use_tqdm=False, priority=[5])
    keep("priority")
    connection.send(found)
