# SPDX-License-Identifier: Apache-2.0
"""What DeepSeek-OCR's processor, which vLLM ships, admits and refuses.

    python ngram_processor.py

`NGramPerReqLogitsProcessor` is what the documentation of DeepSeek-OCR has in --logits-processors.
It is called as vLLM calls it: validate_params in the front end, update_state in the engine.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.model_executor.models.deepseek_ocr import NGramPerReqLogitsProcessor
from vllm.v1.sample.logits_processor import BatchUpdate

#: extra_args, output tokens so far, and what one would expect.
REQUESTS = (
    ({"ngram_size": 2, "whitelist_token_ids": [[3]]}, [], "refused"),
    ({}, [], "admitted, nothing banned"),
    ({"ngram_size": 1}, [3, 4], "admitted, [3, 4] banned"),
)


def outcome(extra_args: dict[str, object], outputs: list[int]) -> str:
    """Return what becomes of a request."""
    params = SamplingParams(extra_args=extra_args)
    try:
        NGramPerReqLogitsProcessor.validate_params(params)
    except ValueError:
        return "refused"
    processor = NGramPerReqLogitsProcessor(VllmConfig(), torch.device("cpu"), False)  # noqa: FBT003
    try:
        processor.update_state(
            BatchUpdate(batch_size=1, removed=[], added=[(0, params, [1], outputs)], moved=[])
        )
        logits = processor.apply(torch.zeros(1, 8))
    except Exception as error:  # noqa: BLE001
        return f"admitted, and ends the engine: {type(error).__name__}: {error}"
    banned = logits[0].isinf().nonzero().flatten().tolist()
    return f"admitted, {banned or 'nothing'} banned"


def main() -> int:
    """Try each request."""
    wrong = 0
    for extra_args, outputs, expected in REQUESTS:
        got = outcome(extra_args, outputs)
        wrong += got != expected
        print(f"extra_args={extra_args}, outputs {outputs}: {got}; expected: {expected}")
    if wrong:
        print(f"FOUND: {wrong} of {len(REQUESTS)} requests are not served as one would expect")
        return 1
    print("GONE: all are")
    return 0


if __name__ == "__main__":
    sys.exit(main())
