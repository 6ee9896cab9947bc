# SPDX-License-Identifier: Apache-2.0
"""One request ends an engine that runs the example of vLLM's own document.

    python documented_example.py FOLDER_OF_A_SMALL_MODEL

The processor is `DummyLogitsProcessor` of docs/features/custom_logitsprocs.md, as it stands there,
but that what it does for rows that move is left out.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys

os.environ["VLLM_LOGGING_LEVEL"] = "CRITICAL"  # else it dumps its whole state
os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # what the engine raises is seen here

import torch
from vllm import LLM, SamplingParams
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor


class DummyLogitsProcessor(LogitsProcessor):
    """Fake logit processor to support unit testing and examples."""

    def __init__(self, *_: object) -> None:
        self.req_info: dict[int, int] = {}

    def is_argmax_invariant(self) -> bool:
        """Never impacts greedy sampling."""
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        """Keep the target of each request."""
        if not batch_update:
            return
        for index, params, _, _ in batch_update.added:
            if params.extra_args and (target_token := params.extra_args.get("target_token")):
                self.req_info[index] = target_token
            else:
                self.req_info.pop(index, None)
        for index in batch_update.removed:
            self.req_info.pop(index, None)

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Mask all but the targets."""
        if not self.req_info:
            return logits
        cols = torch.tensor(list(self.req_info.values()), dtype=torch.long, device=logits.device)
        rows = torch.tensor(list(self.req_info.keys()), dtype=torch.long, device=logits.device)
        values_to_keep = logits[rows, cols].clone()
        logits[rows] = float("-inf")
        logits[rows, cols] = values_to_keep
        return logits


def main(model: str) -> int:
    """Send a neighbour and the request to one engine; return the exit status."""
    llm = LLM(
        model,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=8,
        kv_cache_memory_bytes=32 << 20,
        logits_processors=[DummyLogitsProcessor],
    )
    vocabulary = llm.llm_engine.model_config.get_vocab_size()
    prompts = [{"prompt_token_ids": [3, 4, 5]}, {"prompt_token_ids": [6, 7, 8]}]
    neighbour = SamplingParams(temperature=0, max_tokens=8)
    for target in (vocabulary - 1, vocabulary):
        sent = SamplingParams(max_tokens=8, extra_args={"target_token": target})
        try:
            llm.generate(prompts, [neighbour, sent], use_tqdm=False)
        except IndexError as error:
            print(f"target_token={target}: the engine raised IndexError: {error}")
            print("FOUND: one request ends the engine, and the answers of all others with it")
            return 1
        print(f"target_token={target}: both requests are answered")
    print("GONE: a token that the model does not have ends no engine")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
