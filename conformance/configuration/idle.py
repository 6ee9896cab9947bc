# SPDX-License-Identifier: Apache-2.0
"""Plugins that do nothing: where an engine refuses these, it refuses all of their generation."""

from __future__ import annotations

from functools import cache

import torch

_NAMES = {"logits/batch": "Batch", "logits/slot": "Slot"}


def plugin(generation: str) -> type:
    """Return a plugin of this generation that leaves every row as it is."""
    return _made(_NAMES[generation])


def name(generation: str) -> str:
    """Return the name by which ``--logits-processors`` finds it."""
    return f"{__name__}:{_NAMES[generation]}"


def __getattr__(wanted: str) -> type:
    # vLLM looks the class up in this module, which imports vLLM only then.
    if wanted not in _NAMES.values():
        raise AttributeError(wanted)
    return _made(wanted)


@cache
def _made(wanted: str) -> type:
    return _slot() if wanted == "Slot" else _batch()


def _batch() -> type:
    from vllm.v1.sample.logits_processor import LogitsProcessor

    class Idle(LogitsProcessor):
        def __init__(self, *_: object) -> None:
            """Keep nothing."""

        def is_argmax_invariant(self) -> bool:
            return True

        def update_state(self, batch_update: object) -> None:
            """Follow nobody."""

        def apply(self, logits: torch.Tensor) -> torch.Tensor:
            return logits

    return Idle


def _slot() -> type:
    from vllm.v1.worker.gpu.sample.logits_processor import LogitsProcessor

    class Idle(LogitsProcessor):
        def add_request(self, *_: object) -> bool:
            return False

        def apply(self, logits: torch.Tensor, _ctx: object) -> torch.Tensor:
            return logits

    return Idle
