# SPDX-License-Identifier: Apache-2.0
"""A short sound has other embeddings when Qwen3-ASR encodes it beside a longer one.

    python sounds_side_by_side.py FOLDER

FOLDER holds a small Qwen3-ASR.
Two clients ask at the same time; the sound of the first is encoded alone, and beside the other's.
Needs torchvision, as vLLM's Qwen3-ASR does.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

# The engine runs in this process, where the model can be watched.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
import torch
from vllm import LLM, SamplingParams
from vllm.model_executor.model_loader.dummy_loader import DummyModelLoader

#: Of a sound a tenth of a second long, and of one of three.
SHORT, LONGER = 1600, 4800

#: What is left to rounding, as a share of the largest number.
ROUNDING = 1e-3


def draw_weights(_: object, network: torch.nn.Module, __: object) -> None:
    """Draw weights that are large enough to tell sounds apart, as those of the dummies are not."""
    draw = torch.Generator().manual_seed(0)
    for parameter in network.parameters():
        parameter.data.copy_(torch.rand(parameter.shape, generator=draw) * 0.6 - 0.3)


def main(model: str) -> int:
    """Encode the short sound alone, and beside the longer one."""
    DummyModelLoader.load_weights = draw_weights
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=2,
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
        limit_mm_per_prompt={"audio": 1},
        load_format="dummy",
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    core = llm.llm_engine.engine_core.engine_core
    network = core.model_executor.driver_worker.worker.model_runner.model
    encode, encoded = network.embed_multimodal, []

    def watched(**batch: object) -> object:
        rows = encode(**batch)
        encoded.append([one.clone() for one in rows])
        return rows

    network.embed_multimodal = watched
    params = SamplingParams(temperature=0, max_tokens=1)
    noise = np.random.RandomState(0).uniform(-1, 1, LONGER).astype(np.float32)
    prompts = [
        {
            "prompt": "<|audio_start|><|audio_pad|><|audio_end|>",
            "multi_modal_data": {"audio": (noise[:length], 16000)},
        }
        for length in (SHORT, LONGER)
    ]
    llm.generate(prompts[:1], params, use_tqdm=False)
    llm.llm_engine.reset_mm_cache()
    llm.llm_engine.reset_encoder_cache()
    llm.generate(prompts, params, use_tqdm=False)
    alone, beside = encoded[0][0], encoded[1][0]
    share = float((alone - beside).abs().max() / alone.abs().max())
    print(f"encoded together: {[len(rows) for rows in encoded[1]]} rows")
    if share < ROUNDING:
        print("GONE: a sound has the same rows in any company")
        return 0
    print(f"the short sound's rows differ from those alone by {share:.0%} of the largest number")
    print("FOUND: what a model hears of a sound depends on what others send")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
