# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: the requests that an engine is asked to serve."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vllm.v1.sample.logits_processor import MinPLogitsProcessor

from conformance.engine.models import tiny_llama
from conformance.logits.workload import crowd
from conformance.logits_batch.bench import Bench

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.inputs.history import Choice


def asked(connection: Connection, *, on: int, off: int) -> None:
    """Answer how many of the parameter sets have a request."""
    connection.recv()
    parameters: dict[Choice, dict[str, float]] = {
        ("on", index): {"min_p": 0.1 + index / 20} for index in range(on)
    }
    parameters |= {("off", index): {"top_p": 0.9 - index / 20} for index in range(off)}
    bench = Bench(MinPLogitsProcessor, str(tiny_llama()), parameters, 1)
    connection.send(len({job.choice for job in crowd(bench, invariant=True)}))
