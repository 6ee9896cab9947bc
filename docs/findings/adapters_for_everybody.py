# SPDX-License-Identifier: Apache-2.0
"""On a CPU, a request without an adapter is given the adapter of its neighbour.

    python adapters_for_everybody.py FOLDER_OF_A_TINY_LLAMA

The same request is asked for alone, and beside one that names a LoRA adapter.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"

import torch
from safetensors.torch import load_file, save_file
from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest

PROMPT = {"prompt_token_ids": [5, 80, 160, 240, 320]}
PARAMS = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True)


def adapter(model: Path, folder: Path) -> LoRARequest:
    """Write an adapter of random weights for the queries of a model."""
    torch.manual_seed(22)
    weights = {}
    for name, tensor in load_file(model / "model.safetensors").items():
        if name.endswith("q_proj.weight"):
            key = f"base_model.model.{name.removesuffix('.weight')}"
            weights[f"{key}.lora_A.weight"] = torch.randn(4, tensor.shape[1])
            weights[f"{key}.lora_B.weight"] = torch.randn(tensor.shape[0], 4)
    save_file(weights, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": 4, "lora_alpha": 4, "target_modules": ["q_proj"]}
    (folder / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    return LoRARequest("adapter", 1, str(folder))


def main() -> int:
    """Ask alone, and in company."""
    model = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder:
        llm = LLM(
            str(model),
            enable_lora=True,
            max_loras=1,
            dtype="float32",
            max_model_len=64,
            enforce_eager=True,
            enable_prefix_caching=False,
            kv_cache_memory_bytes=32 << 20,
        )

        def tokens(*adapters: LoRARequest | None) -> list[list[int]]:
            prompts, asked = [PROMPT] * len(adapters), [PARAMS] * len(adapters)
            found = llm.generate(prompts, asked, use_tqdm=False, lora_request=list(adapters))
            return [list(each.outputs[0].token_ids) for each in found]

        request = adapter(model, Path(folder))
        (alone,) = tokens(None)
        (adapted,) = tokens(request)
        company, _ = tokens(None, request)
        print(f"without an adapter, alone:                  {alone}")
        print(f"with the adapter, alone:                    {adapted}")
        print(f"without an adapter, beside one that has it: {company}")
    if company != alone:
        print("FOUND: a request without an adapter is answered with its neighbour's")
        return 1
    print("GONE: a request without an adapter is answered by the model alone")
    return 0


if __name__ == "__main__":
    sys.exit(main())
