# SPDX-License-Identifier: Apache-2.0
"""A multi-modal processor that counts one placeholder too few is served, and a row is lost.

    python missing_placeholder.py FOLDER

FOLDER holds a checkpoint of a small LLaVA, of vLLM's `LlavaForConditionalGeneration`.
An engine is started whose processor counts one image token less than the encoder gives.
Needs torchvision, as vLLM's LLaVA does.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

# The engine runs in this process, where the model can be watched.
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from PIL import Image
from vllm import LLM, ModelRegistry, SamplingParams
from vllm.model_executor.models.llava import (
    LlavaDummyInputsBuilder,
    LlavaForConditionalGeneration,
    LlavaMultiModalProcessor,
    LlavaProcessingInfo,
)
from vllm.multimodal import MULTIMODAL_REGISTRY

rows: list[int] = []


class ShortInfo(LlavaProcessingInfo):
    """Counts one token too few for each image."""

    def get_num_image_tokens(self, *, image_width: int, image_height: int) -> int:
        """Return one less than the encoder's rows."""
        right = super().get_num_image_tokens(image_width=image_width, image_height=image_height)
        return int(right) - 1


@MULTIMODAL_REGISTRY.register_processor(
    LlavaMultiModalProcessor, info=ShortInfo, dummy_inputs=LlavaDummyInputsBuilder
)
class ShortLlava(LlavaForConditionalGeneration):
    """LLaVA with that processor; notes how many rows its encoder gives."""

    def embed_multimodal(self, **kwargs: object) -> object:
        """Encode images."""
        embeddings = super().embed_multimodal(**kwargs)
        rows[:] = [len(item) for item in embeddings]
        return embeddings


def main(model: str) -> int:
    """Ask about an image."""
    ModelRegistry.register_model("LlavaForConditionalGeneration", ShortLlava)
    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=256,
        max_num_seqs=2,
        enforce_eager=True,
        kv_cache_memory_bytes=2**24,
        limit_mm_per_prompt={"image": 1},
        disable_log_stats=True,
    )
    token = llm.llm_engine.model_config.hf_config.image_token_index
    image = Image.linear_gradient("L").convert("RGB")
    prompt = {"prompt": "<image> what is it", "multi_modal_data": {"image": image}}
    params = SamplingParams(temperature=0, max_tokens=4, ignore_eos=True)
    try:
        (answer,) = llm.generate(prompt, params, use_tqdm=False)
    except Exception as error:  # noqa: BLE001
        print(f"{type(error).__name__}: {error}")
        print("GONE: rows that have no place are noticed")
        return 0
    places = answer.prompt_token_ids.count(token)
    print(f"the encoder gave {rows[0]} rows, the prompt has {places} placeholders")
    print(f"answered with {len(answer.outputs[0].token_ids)} tokens")
    if rows[0] == places:
        print("GONE: there are as many placeholders as rows")
        return 0
    print("FOUND: the last row of the image is cut off, and nobody is told")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
