# SPDX-License-Identifier: Apache-2.0
"""A picture has more embeddings than the one of which vLLM takes it that it has the most.

    python more_than_the_most.py FOLDER

FOLDER holds a small LFM2-VL, which cuts large pictures into tiles, or a small GLM-4.1V,
where a picture that is no square comes closer to the area that is allowed.
An engine is started that takes no more tokens in a step than its largest picture should need.
Needs torchvision, as vLLM's models do.
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
    text = processor.dummy_inputs.get_dummy_text({"image": 1}) + " what is it"
    for width, height in ((most.width, most.height), (700, 700), (2048, 1536)):
        image = Image.new("RGB", (width, height))
        prompt = {"prompt": text, "multi_modal_data": {"image": image}}
        try:
            (answer,) = llm.generate(prompt, params, use_tqdm=False)
        except VLLMClientError as error:
            print(f"{width}x{height}: {str(error).split('.')[0]}")
            print("FOUND: a picture is refused that the model takes, for want of room")
            return 1
        print(f"{width}x{height}: {len(answer.outputs[0].token_ids)} tokens")
    print("GONE: there is room for the largest picture")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
