# SPDX-License-Identifier: Apache-2.0
"""Sizes of the simulated engine, and the configuration that plugins are made with."""

from __future__ import annotations

from functools import cache

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

from conformance.engine.model_classes import inspect_models_here
from conformance.engine.models import additional_config

MAX_REQUESTS = 8
MAX_MODEL_LEN = 128
#: Tokens of a prompt, and of outputs, with which a request still fits in and gets one more.
ROOM = MAX_MODEL_LEN // 2 - 1
#: Tokens that a profile may have said in one piece: a request goes on for some steps behind them.
LONGEST_SAID = 96
BLOCK_SIZE = 16


def vllm_config(
    model: str,
    max_requests: int = MAX_REQUESTS,
    vocabulary: int | None = None,
    *,
    drafts: int = 0,
    length: int = MAX_MODEL_LEN,
) -> VllmConfig:
    """Return a complete engine configuration for a model, as a plugin's constructor gets it.

    Args:
        model: folder of the model.
        max_requests: in a batch.
        vocabulary: of the model, if it is to be another one than its own.
        drafts: tokens that speculative decoding guesses in a step, if the engine has it.
        length: tokens of a request, at the most.

    """
    return _made(model, max_requests, vocabulary, drafts, length)


def forget() -> None:
    """Have configurations made anew: vLLM's code must stand what a plugin replaced."""
    _made.cache_clear()


@cache
def _made(
    model: str, max_requests: int, vocabulary: int | None, drafts: int, length: int
) -> VllmConfig:
    speculative = {"method": "ngram", "num_speculative_tokens": drafts, "prompt_lookup_max": 2}
    inspect_models_here()
    return EngineArgs(
        model=model,
        enforce_eager=True,
        max_model_len=length,
        max_num_seqs=max_requests,
        dtype="float32",
        additional_config=additional_config(model),
        speculative_config=speculative if drafts else None,
        hf_overrides={
            **({} if vocabulary is None else {"vocab_size": vocabulary}),
            **({} if length == MAX_MODEL_LEN else {"max_position_embeddings": length}),
        },
    ).create_engine_config()
