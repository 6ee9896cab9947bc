# SPDX-License-Identifier: Apache-2.0
"""Speculative decoding drops a logits processor that is an entry point, and goes on asking it.

    python dropped_by_drafts.py

The configuration is that of an engine with n-gram drafts; `build_logitsprocs` and
`validate_logits_processors_parameters` are what its worker and its front end call.
No model is run, so a CPU will do.
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

import torch
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.v1.sample.logits_processor import (
    LogitsProcessor,
    build_logitsprocs,
    validate_logits_processors_parameters,
)

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": 128,
}


class Guard(LogitsProcessor):
    """A processor that every request relies on."""

    asked = 0

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001
        """Take what vLLM gives."""

    @classmethod
    def validate_params(cls, params: SamplingParams) -> None:
        """Count how often it is asked whether a request may come."""
        del params
        cls.asked += 1

    def is_argmax_invariant(self) -> bool:
        """Say that it changes which token is best."""
        return False

    def update_state(self, batch_update: object) -> None:
        """Keep nothing."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Ban token 5."""
        logits[:, 5] = -float("inf")
        return logits


def made(folder: Path, *listed: type) -> str:
    """Return the processors of an engine with drafts, or why it does not start."""
    config = EngineArgs(
        model=str(folder),
        skip_tokenizer_init=True,
        max_model_len=64,
        speculative_config={
            "method": "ngram",
            "num_speculative_tokens": 2,
            "prompt_lookup_max": 3,
        },
    ).create_engine_config()
    try:
        processors = build_logitsprocs(config, torch.device("cpu"), False, False, listed)  # noqa: FBT003
    except ValueError as error:
        return f"ValueError: {error}"
    return ", ".join(type(processor).__name__ for processor in processors.all)


def main() -> int:
    """Start with the processor in the list, then as an entry point."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(CONFIG))
        listed = made(folder, Guard)
        site = folder / "site" / "guard-1.dist-info"
        site.mkdir(parents=True)
        (site / "METADATA").write_text("Metadata-Version: 2.1\nName: guard\nVersion: 1\n")
        (site / "entry_points.txt").write_text("[vllm.logits_processors]\nit = __main__:Guard\n")
        sys.path.insert(0, str(site.parent))
        installed = made(folder)
        validate_logits_processors_parameters(None, SamplingParams())
    print(f"in the list:     {listed}")
    print(f"by entry point:  {installed}")
    print(f"                 validate_params was asked about {Guard.asked} of 1 request")
    if "Error" not in installed and "Guard" not in installed:
        print("FOUND: the engine starts without the processor that the front end asks")
        return 1
    print("GONE: the engine refuses it, or has it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
