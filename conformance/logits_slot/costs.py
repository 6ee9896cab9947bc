# SPDX-License-Identifier: Apache-2.0
"""Checks of what a step costs, by counting: as the batch grows, and in memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

from conformance.logits import costs
from conformance.logits.costs import Batch
from conformance.logits_slot.bench import Alone, Bench, context, together


def start(bench: Bench, batch: Batch) -> Callable[[], None]:
    """Serve a batch, one row for each request; return the calls of its next step.

    Raises:
        PluginRaised: the plugin raised.

    """
    instance = bench.new(max(costs.SIZES), vocabulary=batch.vocabulary, trusted=True)
    requests = [
        Alone(
            instance,
            bench.params(batch.choice(row)),
            bench.prompt,
            outputs,
            name=f"request {row}",
        )
        for row, outputs in enumerate(batch.outputs(bench))
    ]
    for request in requests:
        request.join()
    with torch.inference_mode():
        instance.states.apply_staged_writes()
    logits = batch.logits(bench)
    for step in range(costs.WARM_UP):
        together(requests, logits)
        for row, request in enumerate(requests):
            if bench.goes_on(batch.choice(row), request.outputs):
                request.append(bench.tokens[(row + step) % len(bench.tokens)])
    ctx = context(requests)
    # The model runner does not call apply where no request wants it.
    wanted = any(instance.answers.values())

    def again() -> None:
        with torch.inference_mode():
            instance.apply_staged_writes()
            if wanted:
                instance.apply(logits, ctx)

    return again
