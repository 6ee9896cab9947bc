# SPDX-License-Identifier: Apache-2.0
"""A picture that LFM2-VL cuts into tiles has more embeddings than vLLM takes for the most.

    python more_than_the_most.py FOLDER

FOLDER holds a small LFM2-VL.
An engine is started that takes no more tokens in a step than its largest picture should need.
Needs torchvision, as vLLM's LFM2-VL does.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from PIL import Image
from vllm import LLM, SamplingParams
from vllm.exceptions import VLLMClientError


def main(model: str) -> int:
    """Ask about pictures that grow."""
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=512,
        max_num_seqs=2,
        max_num_batched_tokens=64,
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
        limit_mm_per_prompt={"image": 1},
        load_format="dummy",
        disable_log_stats=True,
    )
    processor = llm.llm_engine.renderer.get_mm_processor()
    most = processor.info.get_image_size_with_most_features()
    print(f"the size that vLLM takes for the one with most embeddings: {most.width}x{most.height}")
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    for side in (most.width, 700):
        image = Image.new("RGB", (side, side))
        prompt = {"prompt": "<image> what is it", "multi_modal_data": {"image": image}}
        try:
            (answer,) = llm.generate(prompt, params, use_tqdm=False)
        except VLLMClientError as error:
            print(f"{side}x{side}: {str(error).split('.')[0]}")
            print("FOUND: a picture is refused that the model takes, for want of room")
            return 1
        print(f"{side}x{side}: {len(answer.outputs[0].token_ids)} tokens")
    print("GONE: there is room for the largest picture")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
