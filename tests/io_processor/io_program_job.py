# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: the outputs of a program's small host beside those of the simulator."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import torch
from vllm.engine.arg_utils import EngineArgs
from vllm.outputs import PoolingOutput, PoolingRequestOutput
from vllm.pooling_params import PoolingParams
from vllm.renderers import renderer_from_config

from conformance.engine.pooling_models import named_model
from conformance.io_processor.engine import output_of
from conformance.io_processor.host import surroundings

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

PROMPTS: tuple[dict[str, Any], ...] = (
    {"prompt_token_ids": [3, 4, 5]},
    {"prompt_token_ids": [6], "mm_hashes": {"image": ["abc"]}},
    {"prompt_embeds": torch.arange(1280, dtype=torch.float64).reshape(20, 64)},
)
PARAMETERS: tuple[dict[str, Any], ...] = (
    {"task": "embed"},
    {"task": "embed", "dimensions": 8},
    {"task": "token_embed", "use_activation": False},
    {"task": "classify"},
    {"task": "token_classify"},
    {"task": "plugin"},
)


def compare(connection: Connection, *, source: str, model: str) -> None:
    """Answer with the prompts and parameters for which the two give something else."""
    connection.recv()
    folder = named_model(model)
    around = surroundings(folder)
    names: dict[str, Any] = {
        "EngineArgs": EngineArgs,
        "MODEL": folder,
        "PoolingOutput": PoolingOutput,
        "PoolingParams": PoolingParams,
        "PoolingRequestOutput": PoolingRequestOutput,
        "hashlib": hashlib,
        "os": os,
        "renderer_from_config": renderer_from_config,
        "torch": torch,
    }
    exec(source, names)  # noqa: S102 - the functions under test
    different = []
    for prompt in PROMPTS:
        for keywords in PARAMETERS:
            params = PoolingParams(**keywords)
            mine = names["output_of"](prompt, params, "id-0")
            wanted = output_of("id-0", prompt, params, around.config)
            same = torch.equal(mine.outputs.data, wanted.outputs.data)
            if not same or mine.prompt_token_ids != wanted.prompt_token_ids:
                different.append(f"{sorted(prompt)} with {keywords}")
    connection.send(different)
