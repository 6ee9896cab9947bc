# SPDX-License-Identifier: Apache-2.0
"""A logits processor that is an entry point and is listed as well is applied twice.

    python applied_twice.py

vLLM's own `build_logitsprocs` makes the processors of an engine, as its model runner has it.
Model Runner V2 needs a GPU to make them; its loader is shown by what its front end asks.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

import torch
from vllm import SamplingParams
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import LogitsProcessor, build_logitsprocs
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsProcessor as SlotLogitsProcessor,
)
from vllm.v1.worker.gpu.sample.logits_processor import (
    build_custom_logits_processors_params_validator as load_for_v2,
)


class Bonus(LogitsProcessor):
    """Adds 10 to token 5."""

    def __init__(self, vllm_config: object, device: torch.device, is_pin_memory: bool) -> None:  # noqa: FBT001
        """Take what vLLM gives."""

    def is_argmax_invariant(self) -> bool:
        """Say that it changes which token is best."""
        return False

    def update_state(self, batch_update: object) -> None:
        """Keep nothing."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Add."""
        logits[:, 5] += 10
        return logits


class SlotBonus(SlotLogitsProcessor):
    """Stands for the same processor in Model Runner V2; counts how often it is asked."""

    asked = 0

    @classmethod
    def validate_params(cls, sampling_params: SamplingParams) -> None:
        """Count."""
        del sampling_params
        cls.asked += 1

    def apply(self, logits: torch.Tensor, ctx: object) -> torch.Tensor:
        """Change nothing."""
        del ctx
        return logits


def install(folder: Path, name: str) -> None:
    """Make a class of this program the only entry point."""
    metadata = folder / "bonus-1.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: bonus\nVersion: 1\n")
    (metadata / "entry_points.txt").write_text(f"[vllm.logits_processors]\nit = __main__:{name}\n")


def bonus(*listed: type) -> tuple[int, float]:
    """Return how many instances an engine has, and what they add together."""
    made = build_logitsprocs(VllmConfig(), torch.device("cpu"), False, False, listed)  # noqa: FBT003
    ours = [processor for processor in made.all if type(processor).__name__ == "Bonus"]
    logits = torch.zeros(1, 8)
    for processor in ours:
        logits = processor.apply(logits)
    return len(ours), logits[0, 5].item()


def main() -> int:
    """Load it in each way, and in both."""
    listed = bonus(Bonus)
    with tempfile.TemporaryDirectory() as name:
        sys.path.insert(0, name)
        install(Path(name), "Bonus")
        installed, both = bonus(), bonus(Bonus)
        install(Path(name), "SlotBonus")
        load_for_v2([SlotBonus])(SamplingParams())
    for way, (count, added) in (("list", listed), ("entry point", installed), ("both", both)):
        print(f"{way}: {count} instance(s), adds {added:g}")
    print(f"both, Model Runner V2: asked {SlotBonus.asked} time(s) about one request")
    if both != listed or SlotBonus.asked != 1:
        print("FOUND: one class, named in two ways, counts as two processors")
        return 1
    print("GONE: one class is applied once")
    return 0


if __name__ == "__main__":
    sys.exit(main())
