# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: a plugin that was slowed down by a part of its step, against itself."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch

from conformance.benchmark.step_cost import Contestant, measure
from conformance.engine.models import tiny_llama
from reference_plugins.logits_batch.target_token import TargetTokenLogitsProcessor

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

TARGET = {"extra_args": {"target_token": 67}}


class Slowed(TargetTokenLogitsProcessor):
    """Waits before it returns, and uses the processor meanwhile."""

    seconds = 0.0

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        """Force the target tokens, and wait."""
        forced = super().apply(logits)
        if self.seconds:
            until = time.thread_time() + self.seconds
            while time.thread_time() < until:
                pass
        return forced


def compare(connection: Connection) -> None:
    """Answer each ``(part, load, seconds, seed)``: slower by that part, against as it was."""
    torch.set_num_threads(1)
    plain = Contestant(TargetTokenLogitsProcessor, "logits/batch", (TARGET,))
    slowed = Contestant(Slowed, "logits/batch", (TARGET,))
    model = str(tiny_llama())
    try:
        while True:
            part, load, seconds, seed = connection.recv()
            Slowed.seconds = 0.0
            if part:
                usual = measure(plain, None, load, model=model, seconds=0.5).step.median
                Slowed.seconds = part * usual
            connection.send(measure(slowed, plain, load, model=model, seconds=seconds, seed=seed))
    except EOFError:
        pass
