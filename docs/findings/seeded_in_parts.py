# SPDX-License-Identifier: Apache-2.0
"""A seed, and a prompt that is longer than a step, end an engine on a CPU.

    python seeded_in_parts.py MODEL

MODEL is the folder of any small text model.  Three requests have a prompt of 100 tokens, of which
the engine computes 48 in a step: one is greedy, one is random, and one is random with a seed.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

from vllm import LLM, SamplingParams

PROMPT = {"prompt_token_ids": [3 + index for index in range(100)]}
ASKED = {
    "greedy": {"temperature": 0.0},
    "random": {"temperature": 1.0},
    "random with a seed": {"temperature": 1.0, "seed": 7},
}


def main(model: str) -> int:
    """Ask, the request that ends the engine last."""
    llm = LLM(
        model,
        dtype="float32",
        enforce_eager=True,
        max_model_len=128,
        max_num_batched_tokens=48,
        kv_cache_memory_bytes=1 << 25,
    )
    said = ""
    for name, keywords in ASKED.items():
        try:
            llm.generate([PROMPT], SamplingParams(max_tokens=2, **keywords), use_tqdm=False)
            said = "served"
        except RuntimeError as error:
            said = f"RuntimeError: {error}"
        print(f"{name}: {said}")
    if said == "served":
        print("GONE: the request with a seed is served, too")
        return 0
    print("FOUND: a seed and a prompt that is computed in parts end the engine")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
