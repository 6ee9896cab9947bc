# SPDX-License-Identifier: Apache-2.0
"""Two films with different numbers of frames end an engine that serves LLaVA-OneVision.

    python films_of_two_lengths.py FOLDER

FOLDER holds a small LLaVA-OneVision.
Two clients ask at the same time, one about a film of two frames, one about a film of four.
Needs torchvision, as vLLM's LLaVA-OneVision does.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from vllm import LLM, SamplingParams


def asked(frames: int) -> dict[str, object]:
    """Return a question about a film."""
    film = np.zeros((frames, 28, 28, 3), dtype=np.uint8)
    return {"prompt": "<video> what is it", "multi_modal_data": {"video": film}}


def main(model: str) -> int:
    """Ask one after the other, and then both at once."""
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=2,
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
        limit_mm_per_prompt={"image": 1, "video": 1},
        load_format="dummy",
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    for frames in (2, 4):
        (answer,) = llm.generate(asked(frames), params, use_tqdm=False)
        print(f"a film of {frames} frames alone: {len(answer.outputs[0].token_ids)} tokens")
    llm.llm_engine.reset_mm_cache()
    llm.llm_engine.reset_encoder_cache()
    try:
        answers = llm.generate([asked(2), asked(4)], params, use_tqdm=False)
    except Exception as error:  # noqa: BLE001
        print(f"both at once: {type(error).__name__}")
        print("FOUND: two films of different lengths end the engine for everybody")
        return 1
    print(f"both at once: {len(answers)} answers")
    print("GONE: films of different lengths are encoded together")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
