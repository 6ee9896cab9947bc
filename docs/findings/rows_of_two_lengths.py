# SPDX-License-Identifier: Apache-2.0
"""Two clients that send LLaVA rows of embeddings, each another number of them, end the engine.

    python rows_of_two_lengths.py FOLDER

FOLDER holds a small LLaVA. Operators let clients send rows in place of pictures with
--enable-mm-embeds. Needs torchvision, as vLLM's LLaVA does.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import LLM, SamplingParams


def main(model: str) -> int:
    """Ask one after the other, and then both at once."""
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=2,
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
        limit_mm_per_prompt={"image": 1},
        enable_mm_embeds=True,
        load_format="dummy",
        mm_processor_cache_gb=0,
        enable_prefix_caching=False,
        disable_log_stats=True,
    )
    width = llm.model_config.get_inputs_embeds_size()
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)

    def asked(rows: int) -> dict[str, object]:
        picture = torch.full((1, rows, width), 0.5)
        return {"prompt": "<image> what is it", "multi_modal_data": {"image": picture}}

    for rows in (8, 12):
        (answer,) = llm.generate(asked(rows), params, use_tqdm=False)
        print(f"{rows} rows alone: {len(answer.outputs[0].token_ids)} tokens")
    llm.llm_engine.reset_mm_cache()
    llm.llm_engine.reset_encoder_cache()
    try:
        answers = llm.generate([asked(8), asked(12)], params, use_tqdm=False)
    except Exception as error:  # noqa: BLE001
        print(f"both at once: {type(error).__name__}: {str(error).splitlines()[0]}")
        print("FOUND: rows of two lengths end the engine for everybody")
        return 1
    print(f"both at once: {len(answers)} answers")
    print("GONE: rows of two lengths are served together")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
