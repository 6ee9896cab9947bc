# SPDX-License-Identifier: Apache-2.0
"""vLLM allows any number of sounds in a prompt of GLM-ASR, and its processor takes one.

    python two_sounds.py FOLDER

FOLDER holds a small GLM-ASR.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import numpy as np
from vllm.engine.arg_utils import EngineArgs
from vllm.multimodal import MULTIMODAL_REGISTRY


def main(model: str) -> int:
    """Process a prompt with one sound, and one with two."""
    arguments = EngineArgs(model=model, limit_mm_per_prompt={"audio": 2})
    processor = MULTIMODAL_REGISTRY.create_processor(arguments.create_model_config())
    print(f"allowed: {processor.info.get_supported_mm_limits()}")
    sound = np.zeros(8000, dtype=np.float32)
    for count in (1, 2):
        items = processor.info.parse_mm_data({"audio": [sound] * count})
        try:
            found = processor("<|pad|>" * count, items)
        except ValueError as error:
            print(f"{count} sounds: {error.__cause__}")
            print("FOUND: two sounds are refused, though their number is not limited")
            return 1
        print(f"{count} sounds: {len(found['mm_placeholders']['audio'])} ranges")
    print("GONE: two sounds are processed")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
