# SPDX-License-Identifier: Apache-2.0
"""Sizes of the simulated engine, and the configuration that plugins are made with."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.models import registry

if TYPE_CHECKING:
    from vllm.config import VllmConfig

MAX_REQUESTS = 8
MAX_MODEL_LEN = 128
BLOCK_SIZE = 16


@cache
def vllm_config(model: str, max_requests: int = MAX_REQUESTS) -> VllmConfig:
    """Return a complete engine configuration for a model, as a plugin's constructor gets it."""
    _inspect_models_here()
    return EngineArgs(
        model=model,
        enforce_eager=True,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=max_requests,
        dtype="float32",
    ).create_engine_config()


def _inspect_models_here() -> None:
    """Have vLLM look at model classes in this process.

    It does so in a process of its own, where that cannot disturb CUDA, and keeps the result on
    disk; the first time costs one more import of vLLM, which a worker that is forked and ends
    soon can do without.
    """
    if hasattr(registry, "_run_in_subprocess"):
        registry._run_in_subprocess = lambda inspect: inspect()  # noqa: SLF001 - see above
