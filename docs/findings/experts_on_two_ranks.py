# SPDX-License-Identifier: Apache-2.0
"""On a CPU, experts on two ranks end the workers at the first request.

python experts_on_two_ranks.py FOLDER_OF_A_TINY_MIXTRAL
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "0|1")

from vllm import LLM, SamplingParams


def main() -> int:
    """Start two ranks that share the experts, and ask once."""
    try:
        llm = LLM(
            sys.argv[1],
            tensor_parallel_size=2,
            enable_expert_parallel=True,
            dtype="float32",
            max_model_len=64,
            enforce_eager=True,
            kv_cache_memory_bytes=32 << 20,
        )
        print("two ranks share the experts, and the engine has started")
        params = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
        llm.generate({"prompt_token_ids": [5, 80, 160]}, params, use_tqdm=False)
    except Exception as error:  # noqa: BLE001 - whatever the engine says when its workers are gone
        print(f"the first request: {type(error).__name__}: {error}")
        print("FOUND: the workers of an expert-parallel model end at the first request")
        return 1
    print("GONE: experts on two ranks answer")
    return 0


if __name__ == "__main__":
    sys.exit(main())
