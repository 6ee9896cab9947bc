# SPDX-License-Identifier: Apache-2.0
"""An entry point of Model Runner V2 ends the older runner with a TypeError about its constructor.

    python slot_entry_point.py

Both runners load the same group of entry points.  Model Runner V2 says of a class of the older
interface what is wrong with it; the older runner makes an instance of whatever it finds.
"""

# A program, not a module of a package, and it prints what it sees.
# ruff: noqa: INP001, T201

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("VLLM_LOGGING_LEVEL", "CRITICAL")

import torch
from vllm.config import VllmConfig
from vllm.v1.sample.logits_processor import LogitsProcessor, build_logitsprocs
from vllm.v1.worker.gpu.sample.logits_processor import (
    LogitsProcessor as SlotLogitsProcessor,
)
from vllm.v1.worker.gpu.sample.logits_processor import (
    build_custom_logits_processors_params_validator as load_for_v2,
)


class Slot(SlotLogitsProcessor):
    """A correct processor of Model Runner V2."""

    def apply(self, logits: torch.Tensor, ctx: object) -> torch.Tensor:
        """Change nothing."""
        del ctx
        return logits


class Batch(LogitsProcessor):
    """A correct processor of the older runner."""

    def is_argmax_invariant(self) -> bool:
        """Say that greedy requests need not care."""
        return True

    def update_state(self, batch_update: object) -> None:
        """Keep nothing."""

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Change nothing."""
        return logits


def install(site: Path, name: str) -> None:
    """Make a class of this program the only entry point."""
    folder = site / "processor-1.dist-info"
    folder.mkdir(exist_ok=True)
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: processor\nVersion: 1\n")
    (folder / "entry_points.txt").write_text(
        f"[vllm.logits_processors]\nprocessor = __main__:{name}\n"
    )


def start_v1() -> None:
    """Load entry points as the older runner does."""
    build_logitsprocs(VllmConfig(), torch.device("cpu"), False, False)  # noqa: FBT003


def start_v2() -> None:
    """Load entry points as Model Runner V2 does."""
    load_for_v2(None)


def main() -> int:
    """Start each runner with the other's processor."""
    said = {}
    with tempfile.TemporaryDirectory() as name:
        sys.path.insert(0, name)
        for runner, start, other in (("V2", start_v2, "Batch"), ("V1", start_v1, "Slot")):
            install(Path(name), other)
            try:
                start()
            except Exception as error:  # noqa: BLE001
                said[runner] = error
                print(f"{runner} runner, entry point {other}: {type(error).__name__}: {error}")
    if isinstance(said.get("V1"), TypeError):
        print("FOUND: the V1 runner does not say that the class is of another interface")
        return 1
    print("GONE: the V1 runner refuses it in words, or does without it")
    return 0


if __name__ == "__main__":
    sys.exit(main())
