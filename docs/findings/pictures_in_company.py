# SPDX-License-Identifier: Apache-2.0
"""A picture has another number of embeddings beside two others, and the same hash.

    python pictures_in_company.py FOLDER

FOLDER holds a small DeepSeek-VL2.
One client asks about a picture, another about the same one and two more.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from PIL import Image
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal import MULTIMODAL_REGISTRY


def main(model: str) -> int:
    """Process both prompts, and compare what they have of the picture."""
    arguments = EngineArgs(model=model, limit_mm_per_prompt={"image": 3})
    processor = MULTIMODAL_REGISTRY.create_processor(arguments.create_model_config())
    pictures = [Image.new("RGB", (112, 56), shade) for shade in ("red", "green", "blue")]
    counts, hashes = [], []
    for number in (1, 3):
        items = processor.info.parse_mm_data({"image": pictures[:number]})
        found = processor("<image>" * number, items)
        counts.append(found["mm_placeholders"]["image"][0].get_num_embeds())
        hashes.append(found["mm_hashes"]["image"][0])
        print(f"beside {number - 1} others: {counts[-1]} embeddings")
    print(f"the same hash: {hashes[0] == hashes[1]}")
    if counts[0] == counts[1] or hashes[0] != hashes[1]:
        print("GONE: what is cached under a hash is of one size")
        return 0
    print("FOUND: of two clients with one picture, the second does not get what it needs")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
