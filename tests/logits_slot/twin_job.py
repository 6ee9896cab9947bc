# SPDX-License-Identifier: Apache-2.0
"""Runs in a worker: the questions of a profile, put to one engine with one model runner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from conformance.engine.offline import OfflineEngine
from conformance.logits import workload
from conformance.logits.requests import Stock
from conformance.plugin import loader

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from conformance.engine.model_runner import Runner
    from conformance.plugin.target import Target


def ask(
    connection: Connection,
    *,
    target: Target,
    parameters: dict[Any, dict[str, Any]],
    model: str,
    runner: Runner,
) -> None:
    """Answer with the tokens that each request of a crowd gets, and how many were preempted."""
    connection.recv()
    cls = loader.load_class(target)
    jobs = workload.crowd(Stock(cls, model, parameters, 7), invariant=False)
    engine = OfflineEngine.start(model, [cls], runner=runner)
    tokens = engine.generate([job.prompt for job in jobs], [job.params() for job in jobs])
    preempted = sum(len(order.preempted) for order in engine.orders)
    connection.send(([(job.choice, got) for job, got in zip(jobs, tokens, strict=True)], preempted))
